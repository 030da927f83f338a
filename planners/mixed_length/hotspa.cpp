/// HotSPa and Hetu-A: a homogeneous strategy for each interval of lengths. Inside a step they run
/// one after another, longest interval first, and accumulate gradients; the last one, for the
/// shortest sequences, updates. At each change the weights and the gradients so far move; after the
/// update the new weights move to the layout in which the next step starts. Hetu-A is the same set
/// of strategies on Hetu's engine and decides the same. [Hetu v2, 7.3 and Table 10; HotSPa 2024]
///
/// Optimizer states never move: the update always runs under the strategy of the shortest interval,
/// without sequences if the step has none for it.
#include "planners/kit/integers.h"
#include "planners/mixed_length/assign.h"
#include "planners/mixed_length/step_planner.h"

namespace orrery::planners {
namespace {

class IntervalWise final : public StepPlanner {
 public:
  using StepPlanner::StepPlanner;

  StepDecision plan(std::span<const std::int64_t> lengths) const override {
    std::vector<std::vector<std::int64_t>> intervals(strategies().size());
    for (const std::int64_t length : lengths) {
      intervals[strategy_for(length)].push_back(length);
    }
    StepDecision decision;
    for (std::size_t i = intervals.size(); i-- > 0;) {
      if (intervals[i].empty() && i > 0) continue;
      decision.push_back({static_cast<int>(i), balance(strategies()[i], intervals[i]),
                          i == 0 ? models::StepEnd::update : models::StepEnd::accumulate});
    }
    return decision;
  }

  models::ReshardBytes moved_inside_step(const models::StateBytes& bytes) const override {
    return accumulated_bytes(bytes);
  }
  models::ReshardBytes moved_between_steps(const models::StateBytes& bytes) const override {
    return {.weight = bytes.weight, .master = 0, .moments = 0};
  }
};

constexpr StepPlannerEntry interval_wise(const char* name, const char* source) {
  return {name,
          source,
          "which pipeline of the interval's strategy takes a sequence",
          "the cost of switching when it assigns sequences; the search of strategies counts it",
          {.with = step_planner_with<IntervalWise>, .by_interval = true, .homogeneous = true}};
}

}  // namespace

extern const StepPlannerEntry kHetuA;
extern const StepPlannerEntry kHotspa;

const StepPlannerEntry kHetuA = interval_wise("hetu_a", "Hetu v2, 7.3 and Table 10 (Hetu-A)");
const StepPlannerEntry kHotspa =
    interval_wise("hotspa", "Hetu v2, 7.3 and Table 10 (HotSPa, Ge et al. 2024)");

}  // namespace orrery::planners
