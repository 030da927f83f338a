/// The search that the data-parallel baselines share: all legal degrees x ZeRO stages x recompute x
/// shard groups, ranked by DataParallel::estimate.
#pragma once
#include <vector>

#include "models/ir/plan.h"
#include "planners/kit/data_parallel.h"
#include "planners/kit/options.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Whether devices may stay idle: `automatic`, as few as any plan that is legal and fits leaves;
/// `no`, as the estimate decides.
enum class UseAllDevices { automatic, yes, no };
/// Sets of devices that divide the states: all, those of a node, or both are tried.
enum class Sharding { full, hybrid, both };
/// What the user leaves of the recomputation that the job allows.
enum class RecomputeChoice { all, none, selective, full };

struct DataParallelSearch {
  const char* planner = "";
  bool ulysses = false;
  ForcedDegrees forced;
  UseAllDevices use_all = UseAllDevices::automatic;
  std::vector<int> zero_stages;  ///< That the planner has and the user left.
  RecomputeChoice recompute = RecomputeChoice::all;
  Sharding sharding = Sharding::full;
  int shard_group = 0;  ///< Devices per shard group; 0: as `sharding` says.
  int evaluate_top = 1;
};

/// Reads the options that both baselines have: data_parallel, micro_batch_size, recompute, use_all,
/// evaluate_top.
void read_common(OptionReader& reader, DataParallelSearch& search);
/// Their documentation.
std::vector<OptionInfo> common_options();

/// The best plan of the search, or why there is none: "ZeRO stage" where the job allows none of the
/// planner's, "recompute", "schedule", "not expressible" for forced degrees that do not divide,
/// "equal batches" where no degrees do, "device memory".
PlannerResult run(const DataParallelSearch& search, const PlannerInput& input);

}  // namespace orrery::planners
