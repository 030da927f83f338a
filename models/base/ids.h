/// Typed indices: a device id is not a rank id, and mixing them does not compile.
#pragma once
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "models/base/ids.h"

namespace orrery {

/// A count or position, which is not negative, as the std::size_t that it is: to compare it with a
/// size, or ahead of a product that int may not hold. A subscript converts by itself.
template <std::integral T>
constexpr std::size_t as_size(T count) {
  return static_cast<std::size_t>(count);
}

/// The position of an enumerator in a table of all, which start at 0.
template <class Enum>
requires std::is_enum_v<Enum>
constexpr std::size_t index_of(Enum value) { return static_cast<std::size_t>(value); }

/// An index with a meaning; -1 is "none".
template <class Tag>
struct Id {
  std::int32_t value = -1;
  constexpr auto operator<=>(const Id&) const = default;
  constexpr bool valid() const { return value >= 0; }
  /// For indexing vectors; the caller guarantees valid().
  constexpr std::size_t index() const { return as_size(value); }
  constexpr Id& operator++() {
    ++value;
    return *this;
  }
};

/// The ids from `first` up to, but not including, `past`: for (const BlockId block : range).
template <class Id>
struct IdRange {
  struct Iterator {
    Id id;
    constexpr Id operator*() const { return id; }
    constexpr Iterator& operator++() {
      ++id;
      return *this;
    }
    constexpr bool operator==(const Iterator&) const = default;
  };
  Id first;
  Id past;
  constexpr Iterator begin() const { return {first}; }
  constexpr Iterator end() const { return {past}; }
};

/// The ids from `first` to `last`, both included; none when `last` is below `first`.
template <class Tag>
constexpr IdRange<Id<Tag>> ids_from_to(Id<Tag> first, Id<Tag> last) {
  return {first, last < first ? first : Id<Tag>{last.value + 1}};
}

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
