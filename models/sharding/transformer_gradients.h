/// Communication operators behind the backward pass: the gradients of a parameter's copies are
/// added up, with ZeRO shard by shard, and the parameters come back. Private to this folder. [Hetu
/// v2, section 4.2; Rajbhandari et al. 2020]
#pragma once
#include <optional>
#include <string>

#include "models/sharding/graph.h"
#include "models/sharding/transformer_blocks.h"

namespace orrery::models::transformer {

/// Appends, with Frequency::step, the leaf NAME.summands (what the backward pass leaves),
/// NAME.gradient and with ZeRO NAME.refresh (Frequency::pass with ZeRO-3). Shard groups of copies
/// whose members have summands of their own take NAME.whole in front, which adds up inside each
/// copy, and NAME.sums, the same layout with the shard groups as subgroups. Nothing for a parameter
/// of one copy. Each ZeRO shard group of consecutive copies divides the largest dimension that
/// nothing splits; a parameter without one is seen as a matrix of its tensor parts and the rest.
/// Problems: several shard groups, the copies of one of which have different states.
std::optional<GraphProblem> synchronize(const Parameter& parameter, Graph& graph);

/// The same for one matrix that two blocks hold: a device with equal parts for both has added up
/// its own gradients. Problems besides: devices with unequal parts, ZeRO that differs.
std::optional<GraphProblem> synchronize_tied(const Parameter& first, const Parameter& last,
                                             Graph& graph);

}  // namespace orrery::models::transformer
