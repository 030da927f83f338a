// The part of the CUDA runtime and of cuBLAS that the back end calls, on host memory, as late as
// it may: what is enqueued on a stream runs only when someone waits for it. A missing wait, a
// buffer that is used again too early, or an operand in the wrong place gives wrong numbers. Copies
// from any host memory read it when they run; an event may be recorded on streams of its own
// context only.
// Everything happens in the thread that waits; one thread at a time.
#include "tests/executor/cuda/late_runtime.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "executor/cuda/cublas.h"
#include "executor/cuda/green.h"
#include "executor/cuda/kernel_list.h"
#include "executor/cuda/launch.h"
#include "tests/executor/cuda/host_device.h"

std::function<void()> orrery::executor::LateRuntime::in_allocation;
std::atomic<int> orrery::executor::LateRuntime::frees = 0;

struct CUstream_st {
  int context = 0;
  std::deque<std::function<void()>> work;
  std::size_t done = 0, enqueued = 0;
  void add(std::function<void()> item) {
    work.push_back(std::move(item));
    ++enqueued;
  }
  void run_to(std::size_t position) {
    while (done < position) {
      const auto item = std::move(work.front());
      work.pop_front();
      ++done;
      item();
    }
  }
};
struct cublasContext {
  CUstream_st* stream = nullptr;
};
struct CUevent_st {
  int context = 0;
  CUstream_st* stream = nullptr;
  std::size_t position = 0;
};

namespace {

/// What lies in fresh memory: neither zero nor a number that computes.
constexpr int kPoison = 0xff;

void* poisoned(std::size_t bytes) { return std::memset(std::malloc(bytes), kPoison, bytes); }

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "late");
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = new CUstream_st{}, cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return stream->run_to(stream->enqueued), cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = new CUevent_st{}, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event->context != stream->context) return cudaErrorInvalidResourceHandle;
  return *event = {event->context, stream, stream->enqueued}, cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return event->stream->run_to(event->position), cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  stream->add([at = *event] { at.stream->run_to(at.position); });
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return *memory = poisoned(bytes), cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) { return cudaMalloc(memory, bytes); }
cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
cudaError_t cudaMemPoolCreate(cudaMemPool_t*, const cudaMemPoolProps*) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
cudaError_t cudaMallocFromPoolAsync(void** memory, std::size_t bytes, cudaMemPool_t,
                                    cudaStream_t stream) {
  using orrery::executor::LateRuntime;
  if (const auto run = std::exchange(LateRuntime::in_allocation, nullptr)) run();
  *memory = std::malloc(bytes);
  // The stream may use what lay there before up to this point.
  stream->add([memory = *memory, bytes] { std::memset(memory, kPoison, bytes); });
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  ++orrery::executor::LateRuntime::frees;
  return stream->add([memory] { std::free(memory); }), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  stream->add([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

namespace orrery::executor {

template <class Kernel>
cudaError_t launch_each(const Kernel& kernel, std::size_t count, cudaStream_t stream) {
  stream->add([=] {
    for (std::size_t i = 0; i < count; ++i) kernel(i);
  });
  return cudaSuccess;
}
template <class Kernel>
cudaError_t launch_rows(const Kernel& kernel, std::size_t count, cudaStream_t stream) {
  stream->add([=] {
    for (std::size_t row = 0; row < count; ++row) kernel(row, HostLanes());
  });
  return cudaSuccess;
}

#define ORRERY_EACH(...) \
  template cudaError_t launch_each(const kernels::__VA_ARGS__&, std::size_t, cudaStream_t);
#define ORRERY_ROWS(...) \
  template cudaError_t launch_rows(const kernels::__VA_ARGS__&, std::size_t, cudaStream_t);
ORRERY_ALL_KERNELS(ORRERY_EACH, ORRERY_ROWS)

namespace {

/// A part: a context of its own.
class LatePart final : public GreenContext {
 public:
  LatePart(int context, int count) : context_(context), count_(count) {}
  int multiprocessors() const override { return count_; }
  cudaStream_t make_stream() override { return new CUstream_st{context_, {}}; }
  cudaEvent_t make_event() override { return new CUevent_st{context_}; }

 private:
  int context_;
  int count_;
};

}  // namespace

std::vector<std::shared_ptr<GreenContext>> split_device(int, const std::vector<int>& counts) {
  std::vector<std::shared_ptr<GreenContext>> parts;
  for (const int count : counts) {
    parts.push_back(std::make_shared<LatePart>(static_cast<int>(parts.size()) + 1, count));
  }
  return parts;
}

namespace {

/// c (m x n) = alpha op(a) op(b) + beta c, all column-major.
template <class In, class Out, class C>
void multiply(bool ta, bool tb, int m, int n, int k, C alpha, const void* a, int lda, const void* b,
              int ldb, C beta, void* c, int ldc) {
  const auto* x = static_cast<const In*>(a);
  const auto* y = static_cast<const In*>(b);
  auto* z = static_cast<Out*>(c);
  for (std::ptrdiff_t column = 0; column < n; ++column) {
    for (std::ptrdiff_t row = 0; row < m; ++row) {
      C sum = 0;
      for (std::ptrdiff_t i = 0; i < k; ++i) {
        sum += load(x[ta ? row * lda + i : i * lda + row]) *
               load(y[tb ? i * ldb + column : column * ldb + i]);
      }
      Out& out = z[column * ldc + row];
      out = store<Out>(beta == 0 ? alpha * sum : alpha * sum + beta * load(out));
    }
  }
}

cublasStatus_t late_gemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                         int m, int n, int k, const void* alpha, const void* a, cudaDataType in,
                         int lda, const void* b, cudaDataType, int ldb, const void* beta, void* c,
                         cudaDataType out, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t) {
  const bool ta = op_a == CUBLAS_OP_T, tb = op_b == CUBLAS_OP_T;
  const auto run = [&]<class In, class Out>(In, Out) {
    using C = WideOf<In>;
    const C by = *static_cast<const C*>(alpha), keep = *static_cast<const C*>(beta);
    handle->stream->add(
        [=] { multiply<In, Out, C>(ta, tb, m, n, k, by, a, lda, b, ldb, keep, c, ldc); });
  };
  const bool fits = (compute == CUBLAS_COMPUTE_64F) == (in == CUDA_R_64F);
  if (!fits || (op_a == CUBLAS_OP_N ? m : k) > lda || (op_b == CUBLAS_OP_N ? k : n) > ldb ||
      m > ldc) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (in == CUDA_R_64F && out == CUDA_R_64F) {
    run(double{}, double{});
  } else if (in == CUDA_R_32F && out == CUDA_R_32F) {
    run(float{}, float{});
  } else if (in == CUDA_R_16BF && out == CUDA_R_32F) {
    run(Bf16{}, float{});
  } else if (in == CUDA_R_16BF && out == CUDA_R_16BF) {
    run(Bf16{}, Bf16{});
  } else {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t late_batch(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                          int m, int n, int k, const void* alpha, const void* const a[],
                          cudaDataType in, int lda, const void* const b[], cudaDataType in_b,
                          int ldb, const void* beta, void* const c[], cudaDataType out, int ldc,
                          int count, cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  // The arrays of addresses are written by kernels before: read when the product runs.
  const double wide_alpha = in == CUDA_R_64F ? *static_cast<const double*>(alpha) : 0;
  const double wide_beta = in == CUDA_R_64F ? *static_cast<const double*>(beta) : 0;
  const float narrow_alpha = in == CUDA_R_64F ? 0 : *static_cast<const float*>(alpha);
  const float narrow_beta = in == CUDA_R_64F ? 0 : *static_cast<const float*>(beta);
  handle->stream->add([=] {
    CUstream_st now;
    cublasContext here{&now};
    const bool wide = in == CUDA_R_64F;
    for (int i = 0; i < count; ++i) {
      const void* by = wide ? static_cast<const void*>(&wide_alpha) : &narrow_alpha;
      const void* keep = wide ? static_cast<const void*>(&wide_beta) : &narrow_beta;
      const cublasStatus_t result = late_gemm(&here, op_a, op_b, m, n, k, by, a[i], in, lda, b[i],
                                              in_b, ldb, keep, c[i], out, ldc, compute, algorithm);
      if (result != CUBLAS_STATUS_SUCCESS) std::abort();
    }
    now.run_to(now.enqueued);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

Cublas::Cublas() : library_({"libm.so.6"}) {
  status_string = [](cublasStatus_t) { return "an error"; };
  create = [](cublasHandle_t* handle) {
    return *handle = new cublasContext, CUBLAS_STATUS_SUCCESS;
  };
  destroy = [](cublasHandle_t handle) { return delete handle, CUBLAS_STATUS_SUCCESS; };
  set_stream = [](cublasHandle_t handle, cudaStream_t stream) {
    return handle->stream = stream, CUBLAS_STATUS_SUCCESS;
  };
  set_workspace = [](cublasHandle_t, void*, std::size_t) { return CUBLAS_STATUS_SUCCESS; };
  set_math_mode = [](cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; };
  set_sm_count_target = [](cublasHandle_t, int) { return CUBLAS_STATUS_SUCCESS; };
  gemm = late_gemm;
  gemm_batched = late_batch;
}
const Cublas& Cublas::get() {
  static const Cublas kFunctions;
  return kFunctions;
}
void Cublas::check(cublasStatus_t result, const char* what) const {
  if (result != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(what);
}

}  // namespace orrery::executor
