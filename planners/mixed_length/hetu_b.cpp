/// Hetu-B: one strategy for a step, chosen by its longest sequence, with pipelines for long and for
/// short sequences side by side; a cost model distributes the sequences. The strategy changes
/// between steps only: then weights and optimizer states move, because both plans shard them over
/// different replicas. [Hetu v2, 7.3, A.4, Tables 11 and 12]
///
/// Deviation: the paper's cost model is "custom" and not printed; this one balances the computed
/// times of the pipelines (assign.h), and a pipeline takes what fits in its memory.
#include <algorithm>
#include <utility>

#include "planners/mixed_length/assign.h"
#include "planners/mixed_length/search.h"
#include "planners/mixed_length/step_planner.h"

namespace orrery::planners {
namespace {

class HetuB final : public StepPlanner {
 public:
  explicit HetuB(std::vector<PreparedStrategy> strategies) : strategies_(std::move(strategies)) {}

  const std::vector<PreparedStrategy>& strategies() const override { return strategies_; }

  StepDecision plan(std::span<const std::int64_t> lengths) const override {
    const std::int64_t longest =
        lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    const int chosen = strategy_for(strategies_, longest);
    return {{chosen, balance(strategies_[static_cast<std::size_t>(chosen)], lengths),
             models::StepEnd::update}};
  }

  models::SwitchBytes moved_inside_step(const models::StateBytes&) const override {
    return {0, 0, 0};
  }
  models::SwitchBytes moved_between_steps(const models::StateBytes& bytes) const override {
    return {.weight = bytes.weight, .master = bytes.master, .moments = bytes.moments};
  }

 private:
  std::vector<PreparedStrategy> strategies_;
};

std::unique_ptr<StepPlanner> with(std::vector<PreparedStrategy> strategies) {
  return std::make_unique<HetuB>(std::move(strategies));
}

StepPlannerResult make(const MixedLengthInput& input) {
  auto made = prepare_all(input);
  if (auto* no = std::get_if<models::Infeasible>(&made)) return std::move(*no);
  return with(std::move(std::get<std::vector<PreparedStrategy>>(made)));
}

StrategySearchResult search(const StrategySearchInput& input) {
  return search_strategies(input, {.by_interval = false, .homogeneous = false, .make = with});
}

}  // namespace

extern const StepPlannerEntry kHetuB;

const StepPlannerEntry kHetuB = {
    "hetu_b",
    "Hetu v2, 7.3 and Tables 11 and 12 (Hetu-B)",
    "the strategy by the step's longest sequence, and which pipeline takes a sequence",
    "the cost of switching, and transfers between stages",
    make,
    search};

}  // namespace orrery::planners
