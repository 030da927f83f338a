/// Memory, streams and matrix products of one GPU, or of a part of it, for KernelBackend. Private
/// to executor/cuda.
///
/// Kernels run in order on one stream. Uploads and downloads go through pinned memory on streams
/// of their own and have ended when they return; they wait for kernels only where one that uses the
/// same memory has not been waited for yet, so that transfers by other threads overlap with
/// kernels on other tensors.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "executor/compute/backend.h"
#include "executor/cuda/gemm_call.h"
#include "executor/cuda/green.h"

namespace orrery::executor {

/// Streams, pool and handle; lives as long as its last run of memory.
struct CudaQueue;

class CudaMemory final : public Memory {
 public:
  CudaMemory(std::shared_ptr<CudaQueue> queue, std::byte* data, std::size_t bytes);
  ~CudaMemory() override;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  std::byte* data() override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  friend class CudaDevice;
  std::shared_ptr<CudaQueue> queue_;
  std::byte* data_;
  std::size_t bytes_;
  std::uint64_t last_use_ = 0;  ///< Uses of any memory up to its last one; under the turn.
};

class CudaDevice {
 public:
  /// `part` may be null: the whole device.
  CudaDevice(int device, std::shared_ptr<GreenContext> part, bool tf32);

  std::string name() const;
  MemoryPointer allocate(std::size_t bytes);
  /// What allocate() has given out, to tensors and to operations for their own use (scores of
  /// attention, partial sums), and the workspace of cuBLAS.
  std::size_t allocated() const;
  std::size_t peak() const;
  void reset_peak();

  /// Held while an operation is enqueued: no other thread's uses come between its own and their
  /// kernels.
  std::unique_lock<std::recursive_mutex> turn();
  std::byte* use(Memory& memory);
  void copy(const void* from, void* to, std::size_t bytes);
  void send(std::span<const std::byte> bytes, Memory& memory);
  void upload(std::span<const std::byte> bytes, Memory& memory, std::size_t offset);
  void download(Memory& memory, std::size_t offset, std::span<std::byte> into);
  void synchronize();
  void gemm(const GemmCall& call);
  void gemm_batched(const GemmCall& call, int count);

 protected:
  /// The stream for a kernel, with its device current in this thread.
  cudaStream_t begin();

 private:
  std::shared_ptr<CudaQueue> queue_;
};

}  // namespace orrery::executor
