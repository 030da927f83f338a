/// Launches of kernels, so that only kernels.cu is compiled by nvcc. Both are instantiated there
/// for every kernel; they return what cudaGetLastError says. Private to executor/cuda.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

namespace orrery::executor {

/// kernel(i) for i < count, which is not 0.
template <class Kernel>
cudaError_t launch_each(const Kernel& kernel, std::size_t count, cudaStream_t stream);
/// kernel(row, lanes) for row < count, which is not 0: one warp for each row.
template <class Kernel>
cudaError_t launch_rows(const Kernel& kernel, std::size_t count, cudaStream_t stream);

}  // namespace orrery::executor
