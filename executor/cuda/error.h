/// Results of CUDA calls as exceptions. Private to executor/cuda.
#pragma once
#include <cuda_runtime_api.h>

#include <string>

namespace orrery::executor {

/// Throws std::bad_alloc when memory is short, std::runtime_error("what: reason") otherwise. Errors
/// of kernels that were enqueued before may show up at any later call.
void check_cuda(cudaError_t result, const char* what);

}  // namespace orrery::executor
