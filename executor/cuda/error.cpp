#include "executor/cuda/error.h"

#include <fmt/format.h>

#include <new>
#include <stdexcept>

namespace orrery::executor {

void check_cuda(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // The runtime keeps it for the next caller otherwise.
  if (result == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw std::runtime_error(
      fmt::format("{}: {} ({})", what, cudaGetErrorString(result), cudaGetErrorName(result)));
}

}  // namespace orrery::executor
