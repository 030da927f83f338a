/// HSPMD sharding annotations: how a tensor of several dimensions lies on devices, in two tiers.
/// The bottom tier is SPMD's: a device group and its distributed states. The top tier joins several
/// such subgroups, which may differ in size and states, along a heterogeneous dimension.
/// [Hetu v2, section 3]
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/sharding/layout.h"

namespace orrery::models {

/// Along which a tensor is sharded: a dimension of its shape (0, 1, ...), or one of these.
using Axis = int;
inline constexpr Axis kDuplicate = -1;  ///< Every shard is the whole.
inline constexpr Axis kPartial = -2;    ///< Every shard is a summand of the whole.

/// `shards` parts along `axis`.
struct AxisShards {
  Axis axis = kDuplicate;
  int shards = 1;
  constexpr auto operator<=>(const AxisShards&) const = default;
};

/// DS: an ordered list, outermost first. The devices of the group are numbered row-major over it:
/// the last entry changes fastest. In the paper a dimension is divisible by its shards.
/// Deviation: one that is not is cut as evenly as it goes, the first shards one element longer
/// (even_part); lowering needs that, and validate() allows it on request.
using DistributedStates = std::vector<AxisShards>;

/// A device group (DG) and the states (DS) of the tensor on it.
struct Subgroup {
  std::vector<int> devices;  ///< In order, distinct; as many as the product of the shards.
  DistributedStates states;  ///< Empty: one device with the whole.
  bool operator==(const Subgroup&) const = default;
};

/// DG union, DS union, HDim and HSize (the number of subgroups) of a tensor.
struct Annotation {
  std::vector<Subgroup> subgroups;  ///< On disjoint devices; at least one.
  /// HDim: how the tensor is divided among the subgroups. Without meaning for one subgroup.
  Axis hetero_axis = kDuplicate;
  /// Shares of the subgroups along hetero_axis where it is a dimension: subgroup i gets
  /// [sum of shares before i, + shares[i]) / (sum of all) of it. Empty: equal shares. A split that
  /// is known at run time only: see symbolic.h.
  std::vector<std::int64_t> shares;
  bool operator==(const Annotation&) const = default;

  int hetero_size() const { return static_cast<int>(subgroups.size()); }
};

/// Sizes of a tensor's dimensions.
using Shape = std::vector<std::int64_t>;
/// Elements of a tensor.
std::int64_t volume(const Shape& shape);

/// A rectangular part of a tensor: a slice of each dimension.
using Box = std::vector<Slice>;
/// Elements of a box.
std::int64_t volume(const Box& box);
/// Nothing if they do not meet.
std::optional<Box> intersection(const Box& a, const Box& b);
/// Whether `outer` holds all of `inner`.
bool contains(const Box& outer, const Box& inner);
/// "[0,2)x[4,8)".
std::string to_string(const Box& box);

/// One part of a tensor on one device.
struct BoxPiece {
  int device = 0;
  Box box;
  /// Which summand of the top tier's and of the bottom tier's partial sum it is, numbered through
  /// all subgroups; kFullValue without any. With HDim Partial the tensor is the sum of all
  /// summands; else each subgroup's own summands add up to its part.
  int partial = kFullValue;
  auto operator<=>(const BoxPiece&) const = default;
};

/// Whether the shards of a subgroup may differ in length. Graphs need even ones: their operators
/// run on equal parts. Lowering does not: heads over a degree that does not divide them, key-value
/// heads of which there are fewer than devices, vocabularies.
enum class Splits { even, uneven };

/// What is wrong with an annotation of a tensor of that shape, or nothing: no subgroup or an empty
/// one, a device twice, shards that do not multiply to the number of devices, an axis that the
/// shape does not have or that occurs twice in one DS, a dimension that its shards do not divide
/// (Splits::even), shares that are not positive, do not match the subgroups or do not divide the
/// dimension.
std::optional<std::string> validate(const Annotation& annotation, const Shape& shape,
                                    Splits splits = Splits::even);

/// As validate(), without what depends on the sizes of the dimensions.
std::optional<std::string> validate_structure(const Annotation& annotation, int dimensions);

/// What every device holds, in the order of subgroups and devices. The annotation is valid, with
/// even splits or not; a dimension with more shards than elements gives empty boxes. Where
/// hetero_axis and a DS split the same dimension, the subgroup's part is split further.
std::vector<BoxPiece> pieces(const Annotation& annotation, const Shape& shape);

/// Shards of the states along an axis: 1 where it is not split.
int shards_along(const DistributedStates& states, Axis axis);

/// Share of subgroup i along hetero_axis, for both forms of `shares`.
std::int64_t share_of(const Annotation& annotation, int subgroup);
/// Sum of all shares.
std::int64_t total_share(const Annotation& annotation);

/// Whether both have the same HSize, HDim and shares: no change in the top tier.
bool same_top_tier(const Annotation& a, const Annotation& b);
/// Whether both have the same device groups, in the same order.
bool same_device_groups(const Annotation& a, const Annotation& b);
/// Whether either tier has summands.
bool has_partial(const Annotation& annotation);

/// "{0,1,2,3}: S0 x 2, D x 2 | {4}: -; HDim 0 (4:1)".
std::string to_string(const Annotation& annotation);

}  // namespace orrery::models
