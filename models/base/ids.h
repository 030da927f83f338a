/// Typed indices: a device id is not a rank id, and mixing them does not compile.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace orrery {

/// An index with a meaning; -1 is "none".
template <class Tag>
struct Id {
  std::int32_t value = -1;
  constexpr auto operator<=>(const Id&) const = default;
  constexpr bool valid() const { return value >= 0; }
  /// For indexing vectors; the caller guarantees valid().
  constexpr std::size_t index() const { return static_cast<std::size_t>(value); }
};

/// A device keeps its id when others fail: ids number the devices of the cluster *file*.
using DeviceId = Id<struct DeviceTag>;
using NodeId = Id<struct NodeTag>;
/// A rank is one participant of a Program: an index into Program::ranks.
using RankId = Id<struct RankTag>;
/// A block is an index into Workload::blocks; embedding is first, head is last.
using BlockId = Id<struct BlockTag>;
using MicroBatchId = Id<struct MicroBatchTag>;
/// An index into Program::ops.
using OpId = Id<struct OpTag>;
using LinkId = Id<struct LinkTag>;

}  // namespace orrery

template <class Tag>
struct std::hash<orrery::Id<Tag>> {
  std::size_t operator()(orrery::Id<Tag> id) const noexcept {
    return std::hash<std::int32_t>{}(id.value);
  }
};
