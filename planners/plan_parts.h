/// Parts of plans that planners have in common: what the model and the job allow, how layers become
/// segments, and what a finished plan carries.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "models/ir/plan.h"
#include "models/ir/verdict.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Blocks that planners distribute: all but embedding and head.
int count_layers(const models::Workload& workload);

/// Tensor-parallel degrees from 1 to `limit` under which all slices of the layers are equal (the
/// degree divides heads, key-value heads and inner width) and that the job allows. Ascending.
std::vector<int> tensor_degrees(const models::Workload& workload, const models::Job& job,
                                int limit);

/// Schedules that the job allows and that are available without virtual stages, in the order of
/// the job.
std::vector<ir::ScheduleKind> plain_schedules(const models::Job& job);

/// Full if the job allows it, else selective, else none.
ir::Recompute strongest_recompute(const models::Job& job);
/// The other way round.
ir::Recompute weakest_recompute(const models::Job& job);

/// The smallest ZeRO stage that the job allows.
int smallest_zero_stage(const models::Job& job);

/// Blocks of `layers` layers from the layer number `first` (0: the first one after the embedding).
/// Embedding and head belong to the ranges that touch the ends.
ir::Segment segment_of_layers(const models::Workload& workload, int first, int layers);

/// Writes planner, hashes and prediction.
void sign(ir::Plan& plan, const char* planner, const PlannerInput& input, Seconds estimate,
          const ir::MemoryVerdict& memory);

/// True when someone outside asked the search to end.
bool cancelled(const PlannerInput& input);

/// A plan that has been found worth asking the evaluator about.
struct RankedPlan {
  ir::Plan plan;
  Seconds estimate;  ///< The planner's own belief.
};

/// What pick_by_evaluator() found: `chosen` is -1 when no plan fits in memory.
struct Pick {
  int chosen = -1;  ///< Position in the ranking.
  int evaluated = 0;
  int rejected_by_memory = 0;  ///< By the evaluator's own verdict.
  std::string witness;         ///< Why the last rejected one does not fit.
};

/// Asks the evaluator about the plans in order until `most` of them (0: all) fit in memory, and
/// takes the fastest; ties go to the earlier. After Ctrl-C: the best so far, or the first.
/// `plan_at` makes the plan at a position of the ranking.
Pick pick_by_evaluator(const PlannerInput& input, int plans, int most,
                       const std::function<ir::Plan(int)>& plan_at);

}  // namespace orrery::planners
