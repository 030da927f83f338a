/// Hetu-B: one strategy for a step, chosen by its longest sequence, with pipelines for long and for
/// short sequences side by side; a cost model distributes the sequences. The strategy changes
/// between steps only; weights and optimizer states move then, because the two plans shard them
/// over different replicas. [Hetu v2, 7.3, A.4, Tables 11 and 12]
///
/// Deviation: the paper does not print its cost model ("custom"); this one balances the computed
/// times of the pipelines (assign.h), and a pipeline takes every sequence that fits in its memory.
#include <algorithm>

#include "planners/kit/integers.h"
#include "planners/mixed_length/assign.h"
#include "planners/mixed_length/step_planner.h"

namespace orrery::planners {
namespace {

class HetuB final : public StepPlanner {
 public:
  using StepPlanner::StepPlanner;

  StepDecision plan(std::span<const std::int64_t> lengths) const override {
    const std::int64_t longest =
        lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    const int chosen = strategy_for(longest);
    return {{chosen, balance(strategies()[chosen], lengths), models::StepEnd::update}};
  }

  models::ReshardBytes moved_between_steps(const models::StateBytes& bytes) const override {
    return {.weight = bytes.weight, .master = bytes.master, .moments = bytes.moments};
  }
};

}  // namespace

extern const StepPlannerEntry kHetuB;

const StepPlannerEntry kHetuB = {
    "hetu_b",
    "Hetu v2, 7.3 and Tables 11 and 12 (Hetu-B)",
    "the strategy by the step's longest sequence, and which pipeline takes a sequence",
    "the cost of switching, and transfers between stages",
    {.with = step_planner_with<HetuB>}};

}  // namespace orrery::planners
