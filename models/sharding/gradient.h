/// Gradient synchronisation and ZeRO between data-parallel replicas of any tensor-parallel degrees.
/// A replica is the list of pieces in which one copy of a parameter lies; they tile its length.
/// Owners that hold the same slice of one replica (a norm gain in a tensor-parallel group) hold
/// the same gradient. Piece::partial is ignored here.
/// [Hetu v2, section 4.2: SplitAR, SplitRS, SplitAG]
#pragma once
#include <cstdint>
#include <vector>

#include "models/sharding/layout.h"
#include "models/sharding/resolve.h"

namespace orrery::models {

/// All functions below abort (ORRERY_CHECK) when a replica does not tile [0, length) or when one
/// owner holds an element twice: plans are validated before.
using Replicas = std::vector<std::vector<Piece>>;

/// The gradients after the backward pass: replica i holds summand i.
Layout gradient_layout(std::int64_t length, const Replicas& replicas);

/// The parameters, or the gradients after synchronisation: each replica holds full values.
Layout parameter_layout(std::int64_t length, const Replicas& replicas);

/// Shards of the optimizer state. Each `shard_group` consecutive replicas keep one copy (0: all
/// replicas together; the last group may be smaller); within it each segment (between two cuts of
/// any of them) is cut evenly among its owners, one per replica: the first in its list of pieces.
Layout zero_layout(std::int64_t length, const Replicas& replicas, int shard_group);

/// Every replica gets the sum: one all_reduce per set of owners. The union of all cuts gives the
/// segments, and each segment has one owner per replica.
std::vector<Step> synchronise_gradients(std::int64_t length, const Replicas& replicas);

/// gradient_layout -> zero_layout: reduce_scatter inside each shard group, then all_reduce of the
/// shards between the groups.
std::vector<Step> scatter_gradients(std::int64_t length, const Replicas& replicas, int shard_group);

/// zero_layout -> parameter_layout: all_gather inside each shard group, then broadcast to the other
/// holders of the same slice of a replica.
std::vector<Step> gather_parameters(std::int64_t length, const Replicas& replicas, int shard_group);

}  // namespace orrery::models
