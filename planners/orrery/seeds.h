/// Where the search begins: drafts of its own, made by counts of GPU types, and plans of other
/// planners.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "planners/orrery/balance.h"
#include "planners/orrery/costs.h"
#include "planners/orrery/draft.h"
#include "planners/orrery/moves.h"
#include "planners/planner.h"

namespace orrery::planners {

struct SeedDraft {
  double seconds = kNever;  ///< By DraftCosts.
  std::string what;         ///< Where it comes from, in words.
  Draft draft;
};

/// At most `most` drafts that fit, best first. GPU types are divided into sets in all ways (each
/// type by itself, all together, ...); each set forms pipelines over all of its GPUs, for each
/// number of pipelines and tensor-parallel degree of each type, its units dealt by counts. Of each
/// set the best few by rate are combined with those of the others. Layers, recomputation and
/// batches are divided by DraftBalance. `examined` counts pipelines and drafts that were priced.
std::vector<SeedDraft> own_seeds(const PlannerInput& input, const DraftCosts& costs,
                                 const DraftMoves& moves, std::size_t most, std::int64_t& examined);

}  // namespace orrery::planners
