/// Collectives over a Transport, for host memory: the ring algorithms that models/cost prices, in
/// the order of the group. All members end with equal bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "executor/net/transport.h"

namespace orrery::executor {

enum class ElementType : std::uint8_t { f32, f64, bf16 };
std::size_t size_of(ElementType element);

/// An ordered set of ranks, and the position of this rank in it.
struct RingGroup {
  std::vector<int> ranks;
  int position = 0;
  int size() const { return static_cast<int>(ranks.size()); }
};

/// A part of a buffer in elements.
struct Extent {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

/// Pieces of a broadcast, at most.
inline constexpr std::size_t kMostBroadcastPieces = 4096;

/// Tags of one collective use parts `first_part` and up of (step, op): at most 2 x size of them, of
/// a broadcast kMostBroadcastPieces.
struct RingTag {
  std::uint64_t step = 0;
  std::uint64_t op = 0;
  std::uint64_t first_part = 0;
};

/// n even parts, the first `length mod n` one element longer.
std::vector<Extent> even_parts(std::size_t length, int n);

/// Sums over the group in place: reduce-scatter, then all-gather, 2 (n - 1) steps. The sum of each
/// part is taken in ring order from the member after its owner. bf16 is summed in fp32 and rounded
/// at each step.
void all_reduce(Transport& transport, const RingGroup& group, ElementType element,
                std::span<std::byte> data, const RingTag& tag);
/// Member i ends with the sum of extents parts[i] in place; other extents are left in any state.
/// Parts may be uneven or empty.
void reduce_scatter(Transport& transport, const RingGroup& group, ElementType element,
                    std::span<std::byte> data, const std::vector<Extent>& parts,
                    const RingTag& tag);
/// Member i brings parts[i]; all end with all parts.
void all_gather(Transport& transport, const RingGroup& group, ElementType element,
                std::span<std::byte> data, const std::vector<Extent>& parts, const RingTag& tag);
/// From the first member along the ring, in pieces so that the links work at the same time.
void broadcast(Transport& transport, const RingGroup& group, std::span<std::byte> data,
               const RingTag& tag);

}  // namespace orrery::executor
