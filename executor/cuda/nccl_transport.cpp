#include "executor/cuda/nccl_transport.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "executor/cuda/announced_transport.h"
#include "executor/cuda/backend.h"
#include "executor/cuda/dynamic_library.h"
#include "executor/cuda/error.h"

namespace orrery::executor {
namespace {

using Kind = TransportError::Kind;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr std::chrono::microseconds kPoll{20};

/// The functions of NCCL, loaded when they are first needed.
struct Nccl {
  decltype(ncclGetUniqueId)* get_unique_id = nullptr;
  decltype(ncclCommInitRankConfig)* init = nullptr;
  decltype(ncclCommGetAsyncError)* get_async_error = nullptr;
  decltype(ncclCommFinalize)* finalize = nullptr;
  decltype(ncclCommDestroy)* destroy = nullptr;
  decltype(ncclCommAbort)* abort = nullptr;
  decltype(ncclSend)* send = nullptr;
  decltype(ncclRecv)* receive = nullptr;
  decltype(ncclGetErrorString)* error_string = nullptr;
  decltype(ncclGetLastError)* last_error = nullptr;

  /// Throws std::runtime_error when it cannot be loaded. Thread-safe.
  static const Nccl& get() {
    static const Nccl functions;
    return functions;
  }

 private:
  Nccl() : library_({"libnccl.so.2", ORRERY_NCCL_LIBRARY}) {
    library_.find("ncclGetUniqueId", get_unique_id);
    library_.find("ncclCommInitRankConfig", init);
    library_.find("ncclCommGetAsyncError", get_async_error);
    library_.find("ncclCommFinalize", finalize);
    library_.find("ncclCommDestroy", destroy);
    library_.find("ncclCommAbort", abort);
    library_.find("ncclSend", send);
    library_.find("ncclRecv", receive);
    library_.find("ncclGetErrorString", error_string);
    library_.find("ncclGetLastError", last_error);
  }
  static_assert(NCCL_MAJOR == 2);
  DynamicLibrary library_;
};

/// A communicator of two ranks: 0 sends to 1. It never blocks (blocking = 0): every call is
/// followed up by polling, which ends with the limits.
class NcclChannel final : public PayloadChannel {
 public:
  NcclChannel(const ChannelId& id, int device, int peer, bool sends, const ChannelLimits& limits)
      : peer_(peer), sends_(sends), device_(device), limits_(limits) {
    try {
      open(id);
    } catch (...) {
      release();
      throw;
    }
  }
  ~NcclChannel() override { release(); }
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  void send(std::span<const std::byte> data) override {
    make_current();
    for (std::size_t at = 0; at < data.size(); at += kPieceBytes) {
      const std::size_t length = std::min(kPieceBytes, data.size() - at);
      std::memcpy(pinned_, data.data() + at, length);
      check_cuda(cudaMemcpyAsync(staging_, pinned_, length, cudaMemcpyHostToDevice, stream_),
                 "staging for NCCL");
      settle(nccl_.send(staging_, length, ncclInt8, 1, communicator_, stream_), "ncclSend");
      finish("ncclSend");
    }
  }

  void receive(std::span<std::byte> into) override {
    make_current();
    for (std::size_t at = 0; at < into.size(); at += kPieceBytes) {
      const std::size_t length = std::min(kPieceBytes, into.size() - at);
      settle(nccl_.receive(staging_, length, ncclInt8, 0, communicator_, stream_), "ncclRecv");
      check_cuda(cudaMemcpyAsync(pinned_, staging_, length, cudaMemcpyDeviceToHost, stream_),
                 "staging for NCCL");
      finish("ncclRecv");
      std::memcpy(into.data() + at, pinned_, length);
    }
  }

  void close() override {
    make_current();
    settle(nccl_.finalize(communicator_), "ncclCommFinalize");
    const ncclComm_t done = communicator_;
    communicator_ = nullptr;
    if (nccl_.destroy(done) != ncclSuccess) throw failed(ncclInternalError, "ncclCommDestroy");
  }

 private:
  void open(const ChannelId& id) {
    make_current();
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
    check_cuda(cudaMalloc(&staging_, kPieceBytes), "staging for NCCL");
    check_cuda(cudaMallocHost(&pinned_, kPieceBytes), "staging for NCCL");
    ncclUniqueId unique;
    static_assert(sizeof unique == sizeof id);
    std::memcpy(&unique, id.data(), sizeof unique);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    // Two directions of many pairs share the GPU with the model's kernels.
    config.minCTAs = 1;
    config.maxCTAs = 2;
    settle(nccl_.init(&communicator_, 2, unique, sends_ ? 0 : 1, &config),
           "ncclCommInitRankConfig");
  }

  /// Nothing of NCCL or the GPU is waited for that the other side could hold up.
  void release() {
    cudaSetDevice(device_);
    if (communicator_ != nullptr) nccl_.abort(communicator_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    if (event_ != nullptr) cudaEventDestroy(event_);
    if (staging_ != nullptr) cudaFree(staging_);
    if (pinned_ != nullptr) cudaFreeHost(pinned_);
  }

  void make_current() const { check_cuda(cudaSetDevice(device_), "cudaSetDevice"); }

  TransportError failed(ncclResult_t result, const char* what) const {
    const char* detail = communicator_ != nullptr ? nccl_.last_error(communicator_) : "";
    return {result == ncclRemoteError ? Kind::peer_lost : Kind::local, peer_,
            fmt::format("{} with rank {}: {}{}{}", what, peer_, nccl_.error_string(result),
                        detail != nullptr && *detail != '\0' ? ": " : "",
                        detail != nullptr ? detail : "")};
  }

  /// Throws when the transport has failed or the deadline has passed.
  void check_limits(Clock::time_point begin, const char* what) const {
    if (limits_.stop) throw TransportError(Kind::peer_lost, peer_, "the transport has ended");
    const std::chrono::milliseconds patience(limits_.patience_ms.load());
    if (Clock::now() - begin > patience) {
      throw TransportError(
          Kind::timeout, peer_,
          fmt::format("{} with rank {} took more than {} ms", what, peer_, patience.count()));
    }
  }

  /// Until the call has ended: the stream must not be waited for before.
  void settle(ncclResult_t result, const char* what) {
    const Clock::time_point begin = Clock::now();
    while (result == ncclInProgress) {
      check_limits(begin, what);
      std::this_thread::sleep_for(kPoll);
      const ncclResult_t asked = nccl_.get_async_error(communicator_, &result);
      if (asked != ncclSuccess) throw failed(asked, what);
    }
    if (result != ncclSuccess) throw failed(result, what);
  }

  /// Until the stream has done all that is on it.
  void finish(const char* what) {
    const Clock::time_point begin = Clock::now();
    check_cuda(cudaEventRecord(event_, stream_), what);
    for (;;) {
      const cudaError_t state = cudaEventQuery(event_);
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady) check_cuda(state, what);
      cudaGetLastError();  // "Not ready" is no error to leave behind.
      ncclResult_t result = ncclSuccess;
      const ncclResult_t asked = nccl_.get_async_error(communicator_, &result);
      if (asked != ncclSuccess) throw failed(asked, what);
      if (result != ncclSuccess && result != ncclInProgress) throw failed(result, what);
      check_limits(begin, what);
      std::this_thread::sleep_for(kPoll);
    }
  }

  const Nccl& nccl_ = Nccl::get();
  int peer_;
  bool sends_;
  int device_;
  const ChannelLimits& limits_;
  cudaStream_t stream_{};
  cudaEvent_t event_{};
  void* staging_ = nullptr;
  void* pinned_ = nullptr;
  ncclComm_t communicator_ = nullptr;
};

class NcclMaker final : public ChannelMaker {
 public:
  explicit NcclMaker(int device) : device_(device) {}

  ChannelId draw_id() override {
    ncclUniqueId unique;
    const ncclResult_t result = Nccl::get().get_unique_id(&unique);
    if (result != ncclSuccess) {
      throw TransportError(Kind::local, -1,
                           fmt::format("ncclGetUniqueId: {}", Nccl::get().error_string(result)));
    }
    ChannelId id;
    std::memcpy(id.data(), &unique, sizeof unique);
    return id;
  }

  std::unique_ptr<PayloadChannel> open(const ChannelId& id, int peer, bool sends,
                                       const ChannelLimits& limits) override {
    return std::make_unique<NcclChannel>(id, device_, peer, sends, limits);
  }

 private:
  int device_;
};

}  // namespace

std::string nccl_problem() {
  try {
    Nccl::get();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return cuda_status().problem;
}

std::unique_ptr<Transport> make_nccl_transport(std::unique_ptr<Transport> control, int device) {
  const std::string problem = nccl_problem();
  if (!problem.empty()) throw std::runtime_error(problem);
  const CudaStatus status = cuda_status();
  if (device < 0 || device >= static_cast<int>(status.devices.size())) {
    throw std::runtime_error(fmt::format("no CUDA device {} in {}", device, describe(status)));
  }
  return make_announced_transport(std::move(control), std::make_unique<NcclMaker>(device), "nccl");
}

}  // namespace orrery::executor
