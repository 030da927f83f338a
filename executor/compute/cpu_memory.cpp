#include "executor/compute/cpu_memory.h"

#include <algorithm>
#include <new>
#include <utility>

namespace orrery::executor {
namespace {

constexpr std::align_val_t kAlignment{64};

std::size_t capacity_for(std::size_t bytes) {
  const auto unit = static_cast<std::size_t>(kAlignment);
  return std::max(unit, (bytes + unit - 1) / unit * unit);
}

}  // namespace

class CpuMemory : public Memory {
 public:
  CpuMemory(std::shared_ptr<CpuMemoryPool> pool, std::byte* data, std::size_t bytes)
      : pool_(std::move(pool)), data_(data), bytes_(bytes) {}
  ~CpuMemory() override { pool_->give_back(data_, bytes_); }
  CpuMemory(const CpuMemory&) = delete;
  CpuMemory& operator=(const CpuMemory&) = delete;
  std::byte* data() override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<CpuMemoryPool> pool_;
  std::byte* data_;
  std::size_t bytes_;
};

CpuMemoryPool::~CpuMemoryPool() {
  for (const auto& [capacity, runs] : free_) {
    for (std::byte* run : runs) ::operator delete(run, kAlignment);
  }
}

MemoryPointer CpuMemoryPool::allocate(std::size_t bytes) {
  const std::size_t capacity = capacity_for(bytes);
  std::byte* data = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = free_.find(capacity);
    if (found != free_.end() && !found->second.empty()) {
      data = found->second.back();
      found->second.pop_back();
    }
  }
  if (data == nullptr) data = static_cast<std::byte*>(::operator new(capacity, kAlignment));
  MemoryPointer memory = std::make_shared<CpuMemory>(shared_from_this(), data, bytes);
  const std::lock_guard lock(mutex_);
  allocated_ += bytes;
  peak_ = std::max(peak_, allocated_);
  return memory;
}

std::size_t CpuMemoryPool::allocated() const {
  const std::lock_guard lock(mutex_);
  return allocated_;
}

std::size_t CpuMemoryPool::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void CpuMemoryPool::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = allocated_;
}

void CpuMemoryPool::give_back(std::byte* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  allocated_ -= bytes;
  free_[capacity_for(bytes)].push_back(data);
}

}  // namespace orrery::executor
