// The kernels on the device: launches, and every type that they are needed for. The bodies are
// in the headers *kernels.h.
#include <algorithm>

#include "executor/cuda/kernel_list.h"
#include "executor/cuda/lanes.h"
#include "executor/cuda/launch.h"

namespace orrery::executor {
namespace {

constexpr unsigned kThreads = 256;
/// More blocks than any device runs at a time; the rest is done in further turns of the loop.
constexpr std::size_t kMostBlocks = 65536;

template <class Kernel>
__global__ void __launch_bounds__(kThreads) run_each(Kernel kernel, std::size_t count) {
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    kernel(i);
  }
}

/// `row` is the same in all lanes of a warp, so that none of them leaves the others.
template <class Kernel>
__global__ void __launch_bounds__(kThreads) run_rows(Kernel kernel, std::size_t count) {
  constexpr std::size_t kTeams = kThreads / kLanes;
  const std::size_t stride = gridDim.x * kTeams;
  const WarpLanes lanes(static_cast<unsigned>(threadIdx.x % kLanes));
  for (std::size_t row = blockIdx.x * kTeams + threadIdx.x / kLanes; row < count; row += stride) {
    kernel(row, lanes);
  }
}

unsigned blocks_for(std::size_t count, std::size_t each) {
  return static_cast<unsigned>(std::min((count + each - 1) / each, kMostBlocks));
}

}  // namespace

template <class Kernel>
cudaError_t launch_each(const Kernel& kernel, std::size_t count, cudaStream_t stream) {
  run_each<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(kernel, count);
  return cudaGetLastError();
}

template <class Kernel>
cudaError_t launch_rows(const Kernel& kernel, std::size_t count, cudaStream_t stream) {
  run_rows<<<blocks_for(count, kThreads / kLanes), kThreads, 0, stream>>>(kernel, count);
  return cudaGetLastError();
}

#define ORRERY_EACH(...) \
  template cudaError_t launch_each(const kernels::__VA_ARGS__&, std::size_t, cudaStream_t);
#define ORRERY_ROWS(...) \
  template cudaError_t launch_rows(const kernels::__VA_ARGS__&, std::size_t, cudaStream_t);
ORRERY_ALL_KERNELS(ORRERY_EACH, ORRERY_ROWS)

}  // namespace orrery::executor
