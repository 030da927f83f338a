#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "executor/cuda/backend.h"

namespace orrery::executor {

CudaStatus cuda_status() {
  CudaStatus status;
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess) {
    cudaGetLastError();
    const bool no_driver = result == cudaErrorInsufficientDriver;
    int driver = 0;
    cudaDriverGetVersion(&driver);
    status.problem = no_driver && driver == 0
                         ? "no NVIDIA driver is installed"
                         : fmt::format("no CUDA device: {} ({})", cudaGetErrorString(result),
                                       cudaGetErrorName(result));
    return status;
  }
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) continue;
    status.devices.push_back({properties.name, static_cast<std::int64_t>(properties.totalGlobalMem),
                              properties.multiProcessorCount, properties.major, properties.minor});
  }
  if (status.devices.empty()) status.problem = "the NVIDIA driver has no device";
  return status;
}

}  // namespace orrery::executor
