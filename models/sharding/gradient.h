/// Gradient synchronization and ZeRO between copies of a parameter, of any tensor-parallel degrees:
/// from the annotation of the gradients to that of the parameter, or to shards of the optimizer's
/// state. A replica is a copy whose devices saw data of their own: a summand of the gradients.
/// [Hetu v2, section 4.2: SplitAR, SplitRS, SplitAG]
#pragma once
#include <map>
#include <vector>

#include "models/sharding/annotation.h"
#include "models/sharding/flatten.h"
#include "models/sharding/layout.h"
#include "models/sharding/resolve.h"

namespace orrery::models {

/// The gradients of a parameter as the backward pass leaves them. The annotation has a subgroup for
/// each copy of the parameter and HDim Partial (without meaning for one copy). In a subgroup,
/// - S: who holds which part (uneven splits are fine);
/// - D: devices with equal gradients, as of a norm gain in a tensor-parallel group;
/// - P: devices that hold the same part and saw other data, each a replica of its own: a gain under
///   Megatron's sequence parallelism, key-value heads of which there are fewer than devices.
/// Replicas are numbered as the summands are. All functions below abort (ORRERY_CHECK) on an
/// invalid annotation and on several copies with another HDim: plans are validated before.
struct Gradients {
  Annotation annotation;
  Shape shape;
  /// apart: each row of the last dimension is a matrix of its own (an expert's), and ZeRO divides
  /// each of them.
  RowSlices rows = RowSlices::joined;
  /// How much of what ZeRO divides a device keeps, relative to the other owners of a slice. Devices
  /// that are not named: 1.
  std::map<int, int> weights = {};
};

/// The parameter, or its gradients after synchronization: Duplicate instead of Partial, in HDim and
/// in the states. Partial and Duplicate of one DS must be neighbors; they become one entry.
Annotation parameter_annotation(const Annotation& gradients);

/// By replica: its pieces, in the order of the devices; they tile the parameter. Devices that hold
/// equal gradients have equal pieces. Piece::partial is kFullValue.
using Replicas = std::vector<std::vector<Piece>>;
Replicas replicas(const Gradients& gradients);

/// The gradients: replica i holds summand i. A single replica holds full values.
Layout gradient_layout(const Gradients& gradients);

/// The parameter: full values.
Layout parameter_layout(const Gradients& gradients);

/// Shards of the optimizer state. Each `shard_group` consecutive replicas keep one copy (0: all
/// replicas together; the last group may be smaller); within it each finest slice (between two
/// cuts of any of them) is cut among its owners, evenly or by their weights, one per replica: its
/// first device that holds the slice. Replicas that are cut alike could say so in an annotation, S0
/// over the parts and in each part over the replicas. Where they are not, finest slices differ in
/// length, a device has shards of several, and no annotation says that: so shards are derived from
/// the replicas.
Layout zero_layout(const Gradients& gradients, int shard_group);

/// Every replica gets the sum: one all_reduce per set of owners. The union of all cuts gives the
/// finest slices, and each has one owner per replica.
std::vector<GroupStep> synchronize_gradients(const Gradients& gradients);

/// gradient_layout -> zero_layout: reduce_scatter inside each shard group, then all_reduce of the
/// shards between the groups.
std::vector<GroupStep> scatter_gradients(const Gradients& gradients, int shard_group);

/// How what one owner keeps whole, being too short to be cut, reaches the others of its shard
/// group: by itself, or in an all_gather to which the others bring nothing.
enum class ShortSlices { broadcast, all_gather };

/// zero_layout -> parameter_layout: all_gather inside each shard group, then broadcast to the other
/// holders of the same slice of a replica.
std::vector<GroupStep> gather_parameters(const Gradients& gradients, int shard_group,
                                         ShortSlices short_slices = ShortSlices::broadcast);

}  // namespace orrery::models
