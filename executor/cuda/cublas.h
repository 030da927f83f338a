/// The functions of cuBLAS that the back end calls, loaded when they are first needed. Private to
/// executor/cuda.
#pragma once
#include <cublas_v2.h>

#include "executor/cuda/dynamic_library.h"

namespace orrery::executor {

struct Cublas {
  decltype(cublasGetStatusString)* status_string = nullptr;
  decltype(cublasCreate)* create = nullptr;
  decltype(cublasDestroy)* destroy = nullptr;
  decltype(cublasSetStream)* set_stream = nullptr;
  decltype(cublasSetWorkspace)* set_workspace = nullptr;
  decltype(cublasSetMathMode)* set_math_mode = nullptr;
  decltype(cublasSetSmCountTarget)* set_sm_count_target = nullptr;
  // The header has overloads of these two.
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                         const void* alpha, const void* a, cudaDataType, int lda, const void* b,
                         cudaDataType, int ldb, const void* beta, void* c, cudaDataType, int ldc,
                         cublasComputeType_t, cublasGemmAlgo_t) = nullptr;
  cublasStatus_t (*gemm_batched)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n,
                                 int k, const void* alpha, const void* const a[], cudaDataType,
                                 int lda, const void* const b[], cudaDataType, int ldb,
                                 const void* beta, void* const c[], cudaDataType, int ldc,
                                 int count, cublasComputeType_t, cublasGemmAlgo_t) = nullptr;

  /// Throws std::runtime_error when it cannot be loaded. Thread-safe.
  static const Cublas& get();
  /// Throws std::bad_alloc when memory is short, std::runtime_error("what: reason") otherwise.
  void check(cublasStatus_t result, const char* what) const;

 private:
  Cublas();
  DynamicLibrary library_;
};

}  // namespace orrery::executor
