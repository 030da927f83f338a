#include "executor/cuda/nccl_transport.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "executor/cuda/backend.h"
#include "executor/cuda/dynamic_library.h"
#include "executor/cuda/error.h"
#include "executor/cuda/nccl_version.h"
#include "executor/cuda/ordered_transport.h"

namespace orrery::executor {
namespace {

using Kind = TransportError::Kind;
using Clock = std::chrono::steady_clock;

/// So much device memory and as much pinned memory for each direction.
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr std::chrono::microseconds kPoll{20};

/// The functions of NCCL, loaded when they are first needed.
struct Nccl {
  decltype(ncclGetVersion)* get_version = nullptr;
  decltype(ncclGetUniqueId)* get_unique_id = nullptr;
  decltype(ncclCommInitRankConfig)* init = nullptr;
  decltype(ncclCommGetAsyncError)* get_async_error = nullptr;
  decltype(ncclCommFinalize)* finalize = nullptr;
  decltype(ncclCommDestroy)* destroy = nullptr;
  decltype(ncclCommAbort)* abort = nullptr;
  decltype(ncclGroupStart)* group_start = nullptr;
  decltype(ncclGroupEnd)* group_end = nullptr;
  decltype(ncclSend)* send = nullptr;
  decltype(ncclRecv)* receive = nullptr;
  decltype(ncclGetErrorString)* error_string = nullptr;
  decltype(ncclGetLastError)* last_error = nullptr;

  /// Throws std::runtime_error when it cannot be loaded. Thread-safe.
  static const Nccl& get() {
    static const Nccl kFunctions;
    return kFunctions;
  }

 private:
  Nccl() : library_({"libnccl.so.2", ORRERY_NCCL_LIBRARY}) {
    library_.find("ncclGetVersion", get_version);
    int version = 0;
    get_version(&version);
    const std::string problem = nccl_version_problem(version);
    if (!problem.empty()) throw std::runtime_error(problem);
    library_.find("ncclGetUniqueId", get_unique_id);
    library_.find("ncclCommInitRankConfig", init);
    library_.find("ncclCommGetAsyncError", get_async_error);
    library_.find("ncclCommFinalize", finalize);
    library_.find("ncclCommDestroy", destroy);
    library_.find("ncclCommAbort", abort);
    library_.find("ncclGroupStart", group_start);
    library_.find("ncclGroupEnd", group_end);
    library_.find("ncclSend", send);
    library_.find("ncclRecv", receive);
    library_.find("ncclGetErrorString", error_string);
    library_.find("ncclGetLastError", last_error);
  }
  static_assert(NCCL_MAJOR == 2 && NCCL_VERSION_CODE >= kOldestNccl);
  static_assert(NCCL_VERSION(2, 17, 1) == kOldestNccl);
  DynamicLibrary library_;
};

/// One communicator of all ranks, one stream, one group of calls at a time, whose end is waited
/// for. The communicator never blocks (blocking = 0): every call is followed up by polling, which
/// ends with the limits.
class NcclExchange final : public PayloadExchange {
 public:
  NcclExchange(const ExchangeId& id, int device, int rank, int size, const ExchangeLimits& limits)
      : device_(device), limits_(limits) {
    try {
      open(id, rank, size);
    } catch (...) {
      broken_ = true;
      release();
      throw;
    }
  }
  ~NcclExchange() override { release(); }
  NcclExchange(const NcclExchange&) = delete;
  NcclExchange& operator=(const NcclExchange&) = delete;

  void pass(const Out& out, const In& in) override {
    guarded(out.to >= 0 ? out.to : in.from, [&] {
      make_current();
      if (!out.data.empty()) {
        std::memcpy(out_.pinned, out.data.data(), out.data.size());
        check_cuda(cudaMemcpyAsync(out_.staging, out_.pinned, out.data.size(),
                                   cudaMemcpyHostToDevice, stream_),
                   "staging for NCCL");
      }
      settle(post(out, in), "ncclSend or ncclRecv");
      if (!in.into.empty()) {
        check_cuda(cudaMemcpyAsync(in_.pinned, in_.staging, in.into.size(), cudaMemcpyDeviceToHost,
                                   stream_),
                   "staging for NCCL");
      }
      finish("ncclSend or ncclRecv");
      if (!in.into.empty()) std::memcpy(in.into.data(), in_.pinned, in.into.size());
    });
  }

  void close() override {
    guarded(-1, [&] {
      make_current();
      settle(nccl_.finalize(communicator_), "ncclCommFinalize");
      const ncclComm_t done = communicator_;
      communicator_ = nullptr;
      if (nccl_.destroy(done) != ncclSuccess) throw failed(ncclInternalError, "ncclCommDestroy");
    });
  }

 private:
  struct Staging {
    void* staging = nullptr;  ///< On the device.
    void* pinned = nullptr;
  };

  void open(const ExchangeId& id, int rank, int size) {
    make_current();
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
    for (Staging* one : {&out_, &in_}) {
      check_cuda(cudaMalloc(&one->staging, kPieceBytes), "staging for NCCL");
      check_cuda(cudaMallocHost(&one->pinned, kPieceBytes), "staging for NCCL");
    }
    ncclUniqueId unique;
    static_assert(sizeof unique == sizeof id);
    std::memcpy(&unique, id.data(), sizeof unique);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    // The library that is loaded may be older than the header: what it is given has the form of the
    // oldest one that is taken, which every later one reads.
    config.size = offsetof(ncclConfig_t, netName) + sizeof config.netName;
    config.version = kOldestNccl;
    config.blocking = 0;
    // It shares the GPU with the model's kernels.
    config.minCTAs = 1;
    config.maxCTAs = 2;
    settle(nccl_.init(&communicator_, size, unique, rank, &config), "ncclCommInitRankConfig");
  }

  /// Frees nothing that a kernel of NCCL may still use, and waits for nothing that another rank
  /// could hold up.
  void release() {
    cudaSetDevice(device_);
    // A whole communicator that the others still use is left to the end of the process: NCCL may
    // want all ranks of a host for its end, also for ncclCommAbort. [nccl#863]
    if (communicator_ != nullptr && (broken_ || limits_.stop)) nccl_.abort(communicator_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    if (event_ != nullptr) cudaEventDestroy(event_);
    for (const Staging& one : {out_, in_}) {
      if (one.staging != nullptr) cudaFree(one.staging);
      if (one.pinned != nullptr) cudaFreeHost(one.pinned);
    }
  }

  void make_current() const { check_cuda(cudaSetDevice(device_), "cudaSetDevice"); }

  /// After an error a kernel may be left waiting.
  template <class Body>
  void guarded(int peer, const Body& body) {
    peer_ = peer;
    try {
      body();
    } catch (...) {
      broken_ = true;
      throw;
    }
  }

  /// Both calls as one operation; a group that was begun is ended.
  ncclResult_t post(const Out& out, const In& in) {
    ncclResult_t result = nccl_.group_start();
    if (result != ncclSuccess) return result;
    const auto add = [&](ncclResult_t answer) {
      if (result == ncclSuccess && answer != ncclInProgress) result = answer;
    };
    if (!out.data.empty()) {
      add(nccl_.send(out_.staging, out.data.size(), ncclInt8, out.to, communicator_, stream_));
    }
    if (!in.into.empty()) {
      add(nccl_.receive(in_.staging, in.into.size(), ncclInt8, in.from, communicator_, stream_));
    }
    const ncclResult_t ended = nccl_.group_end();
    return result != ncclSuccess ? result : ended;
  }

  std::string with_whom() const {
    return peer_ < 0 ? std::string("all ranks") : fmt::format("rank {}", peer_);
  }

  TransportError failed(ncclResult_t result, const char* what) const {
    const char* detail = communicator_ != nullptr ? nccl_.last_error(communicator_) : "";
    return {result == ncclRemoteError ? Kind::peer_lost : Kind::local, peer_,
            fmt::format("{} with {}: {}{}{}", what, with_whom(), nccl_.error_string(result),
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
          fmt::format("{} with {} took more than {} ms", what, with_whom(), patience.count()));
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
  int device_;
  const ExchangeLimits& limits_;
  int peer_ = -1;        ///< The peer of the call that runs; -1: all.
  bool broken_ = false;  ///< A call has failed.
  cudaStream_t stream_{};
  cudaEvent_t event_{};
  Staging out_, in_;
  ncclComm_t communicator_ = nullptr;
};

class NcclMaker final : public ExchangeMaker {
 public:
  explicit NcclMaker(int device) : device_(device) {}

  ExchangeId draw_id() override {
    ncclUniqueId unique;
    const ncclResult_t result = Nccl::get().get_unique_id(&unique);
    if (result != ncclSuccess) {
      throw TransportError(Kind::local, -1,
                           fmt::format("ncclGetUniqueId: {}", Nccl::get().error_string(result)));
    }
    ExchangeId id;
    std::memcpy(id.data(), &unique, sizeof unique);
    return id;
  }

  std::size_t piece_bytes() const override { return kPieceBytes; }

  std::unique_ptr<PayloadExchange> open(const ExchangeId& id, int rank, int size,
                                        const ExchangeLimits& limits) override {
    return std::make_unique<NcclExchange>(id, device_, rank, size, limits);
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
  return make_ordered_transport(std::move(control), std::make_unique<NcclMaker>(device), "nccl");
}

}  // namespace orrery::executor
