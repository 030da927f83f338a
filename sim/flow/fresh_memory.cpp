#include "sim/flow/fresh_memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace orrery::sim {
namespace {

std::uintptr_t address_of(void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }
std::uintptr_t end_of_heap() { return address_of(sbrk(0)); }

}  // namespace

void take_huge_pages() {
  constexpr int kRoom = 64 << 20, kMapped = 32 << 20;
  constexpr std::uintptr_t kHuge = 2 << 20;
  mallopt(M_MMAP_THRESHOLD, kMapped);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, kRoom);
  void* volatile const taken = std::malloc(kMapped / 2);  // So much is free at the end only.
  const std::uintptr_t first = (address_of(taken) + kHuge - 1) / kHuge * kHuge;
  std::free(taken);
  const std::uintptr_t past = end_of_heap() / kHuge * kHuge;
  if (first < past) madvise(reinterpret_cast<void*>(first), past - first, MADV_HUGEPAGE);
}

void use_up_free_memory() {
  constexpr std::size_t kLargest = 16 << 20, kSmallest = 32;
  const std::uintptr_t behind = end_of_heap() - mallinfo2().keepcost;
  for (std::size_t size = kLargest; size >= kSmallest; size /= 2) {
    for (;;) {
      void* volatile const taken = std::malloc(size);
      if (taken != nullptr && address_of(taken) < behind) continue;
      std::free(taken);
      break;
    }
  }
}

}  // namespace orrery::sim
