#include "executor/cuda/backend.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "executor/cuda/device.h"
#include "executor/cuda/error.h"
#include "executor/cuda/kernel_backend.h"
#include "executor/cuda/launch.h"

namespace orrery::executor {
namespace {

class CudaLauncher final : public CudaDevice {
 public:
  using CudaDevice::CudaDevice;

  template <class Kernel>
  void each(const Kernel& kernel, std::size_t count) {
    if (count == 0) return;
    check_cuda(launch_each(kernel, count, begin()), "a kernel");
  }
  template <class Kernel>
  void rows(const Kernel& kernel, std::size_t count) {
    if (count == 0) return;
    check_cuda(launch_rows(kernel, count, begin()), "a kernel");
  }
};

std::unique_ptr<Backend> make(Precision precision, int device, std::shared_ptr<GreenContext> part,
                              bool tf32) {
  auto launcher = std::make_shared<CudaLauncher>(device, std::move(part), tf32);
  switch (precision) {
    case Precision::fp32:
      return std::make_unique<KernelBackend<CudaLauncher, float>>(std::move(launcher));
    case Precision::fp64:
      return std::make_unique<KernelBackend<CudaLauncher, double>>(std::move(launcher));
    case Precision::bf16:
      break;
  }
  return std::make_unique<KernelBackend<CudaLauncher, Bf16>>(std::move(launcher));
}

void expect_device(int device) {
  const CudaStatus status = cuda_status();
  if (!status.problem.empty()) throw std::runtime_error(status.problem);
  if (device < 0 || device >= static_cast<int>(status.devices.size())) {
    throw std::runtime_error(fmt::format("no CUDA device {} in {}", device, describe(status)));
  }
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(Precision precision, int device, int sm_count,
                                           bool tf32) {
  expect_device(device);
  std::shared_ptr<GreenContext> part;
  if (sm_count > 0) part = split_device(device, {sm_count}).front();
  return make(precision, device, std::move(part), tf32);
}

std::vector<std::unique_ptr<Backend>> make_green_backends(Precision precision, int device,
                                                          const std::vector<int>& sm_counts) {
  expect_device(device);
  std::vector<std::unique_ptr<Backend>> out;
  for (auto& part : split_device(device, sm_counts)) {
    out.push_back(make(precision, device, std::move(part), false));
  }
  return out;
}

}  // namespace orrery::executor
