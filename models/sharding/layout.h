/// The flat form of what lies where: the elements of a tensor in one row, and the pieces of it that
/// each owner holds, with replicas and partial sums. flatten() makes it from an annotation, which
/// is where lowering says what lies where; only parts of several owners' finest slices (ZeRO's
/// shards, the shares of a transfer) are put together here. resolve() works on it.
/// [Hetu v2, section 3]
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery::models {

/// Elements begin <= x < end along one dimension. The element is the caller's unit: an attention
/// head, a row, a token, a parameter.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  constexpr std::int64_t size() const { return end - begin; }
  constexpr auto operator<=>(const Slice&) const = default;
};

/// Piece::partial of a piece that holds the value itself and not a summand of it.
inline constexpr int kFullValue = -1;

/// One owner holds one slice.
struct Piece {
  int owner = 0;  ///< Opaque to this folder, >= 0: a rank or a device.
  Slice slice;    ///< May be empty.
  /// Which summand this is, >= 0 (for gradients the index of the data-parallel replica), or
  /// kFullValue. The value of the tensor is the sum of one copy of each summand.
  int partial = kFullValue;
  constexpr auto operator<=>(const Piece&) const = default;
};

/// A tensor of `length` elements and the pieces that its owners hold. Equal slices on several
/// owners (of the same summand) are replicas. Either all pieces hold full values or none does, and
/// the pieces of each summand cover the whole length.
struct Layout {
  std::int64_t length = 0;
  std::vector<Piece> pieces;
  bool operator==(const Layout&) const = default;
};

/// Part `index` of `parts` of a slice that is cut as evenly as it goes: the first
/// `size mod parts` parts have one element more. With more parts than elements some are empty.
Slice even_part(Slice whole, std::int64_t parts, std::int64_t index);

/// What is wrong with the layout, or nothing: slice out of range, negative owner, full values mixed
/// with summands, two overlapping pieces of one owner, elements (of one summand) that nobody holds.
std::optional<std::string> validate(const Layout& layout);

/// What `owner` holds, of any summand: ascending, disjoint, adjacent slices joined.
std::vector<Slice> held(const Layout& layout, int owner);

/// Sum of the sizes.
std::int64_t elements(const std::vector<Slice>& slices);

}  // namespace orrery::models
