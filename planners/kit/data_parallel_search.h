/// The search that the data-parallel baselines share: all legal degrees x ZeRO stages x recompute x
/// shard groups, ranked by DataParallel::estimate.
#pragma once
#include <vector>

#include "models/config/visitor.h"
#include "models/ir/plan.h"
#include "planners/kit/data_parallel.h"
#include "planners/kit/use_all_devices.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Sets of devices that divide the states: all, those of a node, or both are tried.
enum class Sharding { full, hybrid, both };
/// What the user leaves of the recomputation that the job allows.
enum class RecomputeChoice { search, none, selective, full };
ir::EnumNames<Sharding> enum_names(Sharding);
ir::EnumNames<RecomputeChoice> enum_names(RecomputeChoice);

/// Settings that both baselines have.
struct DataParallelSettings {
  ForcedDegrees forced;
  RecomputeChoice recompute = RecomputeChoice::search;
  UseAllDevices use_all = UseAllDevices::automatic;
  int evaluate_top = 1;
};
/// All but ForcedDegrees::sequence_degree, which one of them has.
void describe(config::Visitor& v, DataParallelSettings& settings);

struct DataParallelSearch {
  const char* planner = "";
  const DataParallelSettings& settings;
  bool ulysses = false;
  std::vector<int> zero_stages;  ///< That the planner has and the user left.
  Sharding sharding = Sharding::full;
  int shard_group = 0;  ///< Devices per shard group; 0: as `sharding` says.
};

/// The best plan of the search, or why there is none: "ZeRO stage" where the job allows none of the
/// planner's, "recompute", "schedule", "not expressible" for forced degrees that do not divide,
/// "equal batches" where no degrees do, "device memory".
PlannerResult run(const DataParallelSearch& search, const PlannerInput& input);

}  // namespace orrery::planners
