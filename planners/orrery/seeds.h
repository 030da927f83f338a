/// Where the search begins: drafts of its own, made by counts of GPU types, and plans of other
/// planners.
#pragma once
#include <cstddef>
#include <functional>
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
  double value = kNever;    ///< Times the rate of what it uses.
  std::string what;         ///< Where it comes from, in words.
  Draft draft;
};

/// Devices beyond which a search has simulations for few seeds: all of them use all GPU types
/// there.
inline constexpr std::size_t kMostForSubsets = 96;

/// At most `most` drafts that fit, and half as many whose groups share experts, best first: by
/// seconds times what `rate` says of the draft. GPU types are divided into sets in all ways (each
/// type by itself, all together, ...); each set forms pipelines over all of its GPUs, for each
/// number of pipelines and tensor-parallel degree of each type, its units dealt by counts. Of each
/// set the best few by rate are combined with those of the others. Layers, recomputation and
/// batches are divided by DraftBalance. `examined` counts pipelines and drafts that were priced.
std::vector<SeedDraft> own_seeds(const PlannerInput& input, const DraftCosts& costs,
                                 const DraftMoves& moves,
                                 const std::function<double(const Draft&)>& rate, std::size_t most,
                                 std::int64_t& examined);

}  // namespace orrery::planners
