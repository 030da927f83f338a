/// Memory of the CPU back end. Freed runs are kept and handed out again for requests of equal size:
/// every micro-batch asks for the same sizes, and fresh pages cost about as much as a pass over
/// them. All runs start at a multiple of 64 bytes, so that vector code sees equal alignment in
/// every run and gives equal bits.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "executor/compute/backend.h"

namespace orrery::executor {

/// Lives as long as its last run of memory. Thread-safe.
class CpuMemoryPool : public std::enable_shared_from_this<CpuMemoryPool> {
 public:
  ~CpuMemoryPool();
  /// Not initialized. Throws std::bad_alloc.
  MemoryPointer allocate(std::size_t bytes);
  /// Bytes given out: now, and at most since reset_peak().
  std::size_t allocated() const;
  std::size_t peak() const;
  void reset_peak();

 private:
  friend class CpuMemory;
  void give_back(std::byte* data, std::size_t bytes);

  mutable std::mutex mutex_;
  std::size_t allocated_ = 0;
  std::size_t peak_ = 0;
  std::map<std::size_t, std::vector<std::byte*>> free_;  ///< By capacity.
};

}  // namespace orrery::executor
