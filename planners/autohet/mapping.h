/// Maps device groups to physical nodes and pipeline stages [AutoHet, III-C, Algorithm 1, line 10].
#pragma once
#include <vector>

#include "planners/autohet/settings.h"
#include "planners/kit/grouping.h"

namespace orrery::planners {

/// For each group its units by stage, as positions in `units`. Kinds are numbered from the weakest
/// to the strongest; the groups together have exactly the units.
///
/// `mapping` on: stages of a pipeline are filled from the weakest kind on. As long as each group
/// still needs a unit of the weakest kind left and some node has one for each, that node gives one
/// to each group as its next stage, so that data-parallel peers share NVLink. The rest is dealt out
/// stage by stage, to the groups in turn, in the order of the nodes: data parallelism before
/// pipelines. Off: group by group, in the order of the nodes.
/// Deviation: the paper leaves open which node is taken of several; here the first.
std::vector<std::vector<int>> map_groups(const std::vector<AutohetUnit>& units,
                                         const std::vector<UnitCounts>& groups, bool mapping);

}  // namespace orrery::planners
