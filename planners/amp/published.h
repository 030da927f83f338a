/// The layer partition of AMP's public code (DachengLi1/AMP, src/pipe.py), which differs from the
/// paper's: its dynamic program forgets the cuts that it has paid for.
#pragma once
#include <optional>
#include <vector>

#include "planners/amp/cost.h"

namespace orrery::planners {

/// The split that the public code finds: a program over (item, stages, longest so far) like the
/// paper's, but a cut's cost is only compared, never carried on; of equal splits the one with the
/// earliest last cut. `cost` is that of amp_pipeline_cost. Longest stages that differ by less than
/// 1e-9 of the total are one state. Nothing when stages > items.
std::optional<ChainSplit> amp_split_published(const AmpChain& chain);

/// Equally many items for each stage, the remainder to the first stages: what the public code takes
/// for one micro-batch. Boundaries. stages <= items.
std::vector<int> amp_split_even(int items, int stages);

}  // namespace orrery::planners
