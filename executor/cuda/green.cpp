#include "executor/cuda/green.h"

#include <cuda.h>
#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "executor/cuda/error.h"
#include "executor/cuda/groups.h"

namespace orrery::executor {
namespace {

/// A function of the driver as it was in this version of CUDA (1000 major + 10 minor).
template <class Function>
void find(const char* name, unsigned version, Function*& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer{};
  check_cuda(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &answer),
             name);
  if (found == nullptr || answer != cudaDriverEntryPointSuccess) {
    throw std::runtime_error(
        fmt::format("the NVIDIA driver has no {} (green contexts need CUDA "
                    "{}.{} or later)",
                    name, version / 1000, version % 1000 / 10));
  }
  function = reinterpret_cast<Function*>(found);
}

struct Driver {
  decltype(cuGetErrorName)* error_name = nullptr;
  decltype(cuDeviceGet)* device_get = nullptr;
  decltype(cuDeviceGetDevResource)* resource_get = nullptr;
  decltype(cuDevSmResourceSplitByCount)* split = nullptr;
  decltype(cuDevResourceGenerateDesc)* describe = nullptr;
  decltype(cuGreenCtxCreate)* create = nullptr;
  decltype(cuGreenCtxDestroy)* destroy = nullptr;
  decltype(cuGreenCtxStreamCreate)* stream_create = nullptr;
  decltype(cuCtxFromGreenCtx)* context_of = nullptr;
  decltype(cuCtxPushCurrent)* push = nullptr;
  decltype(cuCtxPopCurrent)* pop = nullptr;
  decltype(cuEventCreate)* event_create = nullptr;

  Driver() {
    find("cuGetErrorName", 6000, error_name);
    find("cuDeviceGet", 2000, device_get);
    find("cuDeviceGetDevResource", 12040, resource_get);
    find("cuDevSmResourceSplitByCount", 12040, split);
    find("cuDevResourceGenerateDesc", 12040, describe);
    find("cuGreenCtxCreate", 12040, create);
    find("cuGreenCtxDestroy", 12040, destroy);
    find("cuGreenCtxStreamCreate", 12050, stream_create);
    find("cuCtxFromGreenCtx", 12040, context_of);
    find("cuCtxPushCurrent", 4000, push);
    find("cuCtxPopCurrent", 4000, pop);
    find("cuEventCreate", 2000, event_create);
  }
  void check(CUresult result, const char* what) const {
    if (result == CUDA_SUCCESS) return;
    const char* name = nullptr;
    error_name(result, &name);
    throw std::runtime_error(fmt::format("{}: {}", what, name != nullptr ? name : "unknown error"));
  }
};

class DriverContext final : public GreenContext {
 public:
  DriverContext(std::shared_ptr<const Driver> driver, CUdevice device,
                std::vector<CUdevResource> groups)
      : driver_(std::move(driver)) {
    for (const CUdevResource& group : groups) {
      multiprocessors_ += static_cast<int>(group.sm.smCount);
    }
    CUdevResourceDesc description{};
    driver_->check(
        driver_->describe(&description, groups.data(), static_cast<unsigned>(groups.size())),
        "cuDevResourceGenerateDesc");
    driver_->check(driver_->create(&context_, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
                   "cuGreenCtxCreate");
  }
  ~DriverContext() override { driver_->destroy(context_); }
  DriverContext(const DriverContext&) = delete;
  DriverContext& operator=(const DriverContext&) = delete;

  int multiprocessors() const override { return multiprocessors_; }
  cudaStream_t make_stream() override {
    CUstream stream{};
    driver_->check(driver_->stream_create(&stream, context_, CU_STREAM_NON_BLOCKING, 0),
                   "cuGreenCtxStreamCreate");
    return stream;
  }
  cudaEvent_t make_event() override {
    CUcontext own{};
    driver_->check(driver_->context_of(&own, context_), "cuCtxFromGreenCtx");
    driver_->check(driver_->push(own), "cuCtxPushCurrent");
    CUevent event{};
    const CUresult made = driver_->event_create(&event, CU_EVENT_DISABLE_TIMING);
    CUcontext popped{};
    driver_->check(driver_->pop(&popped), "cuCtxPopCurrent");
    driver_->check(made, "cuEventCreate");
    return event;
  }

 private:
  std::shared_ptr<const Driver> driver_;
  CUgreenCtx context_{};
  int multiprocessors_ = 0;
};

}  // namespace

std::vector<std::shared_ptr<GreenContext>> split_device(int device,
                                                        const std::vector<int>& counts) {
  check_cuda(cudaSetDevice(device), "cudaSetDevice");
  check_cuda(cudaFree(nullptr), "the device's context");  // Kept active while parts come and go.
  const auto driver = std::make_shared<const Driver>();
  CUdevice handle{};
  driver->check(driver->device_get(&handle, device), "cuDeviceGet");
  CUdevResource all{};
  driver->check(driver->resource_get(handle, &all, CU_DEV_RESOURCE_TYPE_SM),
                "cuDeviceGetDevResource");
  // The smallest groups of one split: groups of one split may be joined in one context, and are
  // disjoint, which those of several splits are not.
  unsigned available = 0;
  driver->check(driver->split(nullptr, &available, &all, nullptr, 0, 1),
                "cuDevSmResourceSplitByCount");
  std::vector<CUdevResource> groups(available);
  driver->check(driver->split(groups.data(), &available, &all, nullptr, 0, 1),
                "cuDevSmResourceSplitByCount");
  groups.resize(available);
  if (groups.empty()) throw std::runtime_error("the device cannot be split");
  const int unit = static_cast<int>(groups.front().sm.smCount);
  std::vector<std::shared_ptr<GreenContext>> out;
  auto next = groups.begin();
  for (const int taken : groups_for(counts, unit, static_cast<int>(groups.size()))) {
    out.push_back(std::make_shared<DriverContext>(driver, handle, std::vector(next, next + taken)));
    next += taken;
  }
  return out;
}

}  // namespace orrery::executor
