#include "executor/cuda/cublas.h"

#include <fmt/format.h>

#include <new>
#include <stdexcept>
#include <type_traits>

#define ORRERY_TEXT(x) #x
#define ORRERY_NAME_OF(x) ORRERY_TEXT(x)  ///< As a text, after macros: cublasCreate is one.

namespace orrery::executor {

// By the name that carries the version of the interface, else where the build found it.
Cublas::Cublas()
    : library_({"libcublas.so." ORRERY_NAME_OF(CUBLAS_VER_MAJOR), ORRERY_CUBLAS_LIBRARY}) {
  library_.find(ORRERY_NAME_OF(cublasGetStatusString), status_string);
  library_.find(ORRERY_NAME_OF(cublasCreate), create);
  library_.find(ORRERY_NAME_OF(cublasDestroy), destroy);
  library_.find(ORRERY_NAME_OF(cublasSetStream), set_stream);
  library_.find(ORRERY_NAME_OF(cublasSetWorkspace), set_workspace);
  library_.find(ORRERY_NAME_OF(cublasSetMathMode), set_math_mode);
  library_.find(ORRERY_NAME_OF(cublasSetSmCountTarget), set_sm_count_target);
  library_.find(ORRERY_NAME_OF(cublasGemmEx), gemm);
  library_.find(ORRERY_NAME_OF(cublasGemmBatchedEx), gemm_batched);
}

// The types that are written out in the header are those of the interface.
static_assert(std::is_same_v<decltype(Cublas::gemm),
                             decltype(static_cast<decltype(Cublas::gemm)>(&cublasGemmEx))>);
static_assert(
    std::is_same_v<decltype(Cublas::gemm_batched),
                   decltype(static_cast<decltype(Cublas::gemm_batched)>(&cublasGemmBatchedEx))>);

const Cublas& Cublas::get() {
  static const Cublas kFunctions;
  return kFunctions;
}

void Cublas::check(cublasStatus_t result, const char* what) const {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  if (result == CUBLAS_STATUS_ALLOC_FAILED) throw std::bad_alloc();
  throw std::runtime_error(fmt::format("{}: cuBLAS: {}", what, status_string(result)));
}

}  // namespace orrery::executor
