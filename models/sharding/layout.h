/// What lies where: a tensor cut along one dimension, with replicas and partial sums.
/// Layout is the flat form that every annotation expands into: Hetu v2's device group union with
/// its distributed states (Split, Duplicate, Partial) and HDim becomes one list of pieces.
/// [Hetu v2, section 3]
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery::models {

/// Elements begin <= x < end along the cut dimension. The element is the caller's unit: an
/// attention head, a row, a token, a parameter.
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

/// Cuts the length evenly, in the order of the owners; the first `length mod owners` get one
/// element more. Pieces of a length shorter than the list of owners may be empty.
Layout split(std::int64_t length, const std::vector<int>& owners);

/// Owner i gets [boundaries[i], boundaries[i + 1]); there is one boundary more than owners. The
/// length is the last boundary. The caller guarantees 0 = first <= ... <= last.
Layout split_at(const std::vector<std::int64_t>& boundaries, const std::vector<int>& owners);

/// Each owner holds the whole tensor.
Layout replicated(std::int64_t length, const std::vector<int>& owners);

/// Owner i holds summand i of the whole tensor.
Layout partial(std::int64_t length, const std::vector<int>& owners);

/// What is wrong with the layout, or nothing: slice out of range, negative owner, full values mixed
/// with summands, two overlapping pieces of one owner, elements (of one summand) that nobody holds.
std::optional<std::string> validate(const Layout& layout);

/// What `owner` holds, of any summand: ascending, disjoint, adjacent slices joined.
std::vector<Slice> held(const Layout& layout, int owner);

/// Sum of the sizes.
std::int64_t elements(const std::vector<Slice>& slices);

}  // namespace orrery::models
