/// HotSPa and Hetu-A: for each interval of lengths a homogeneous strategy; inside a step they run
/// one after another, longest interval first, and accumulate gradients; the last one, of the
/// shortest sequences, updates. At each change weights and the gradients so far move; after the
/// update the new weights move to the layout that the next step starts with. Hetu-A is the same set
/// of strategies on Hetu's engine: the same decisions. [Hetu v2, 7.3 and Table 10; HotSPa 2024]
///
/// Optimizer states never move: the update always runs under the strategy of the shortest interval,
/// if need be without sequences.
#include <utility>

#include "planners/mixed_length/assign.h"
#include "planners/mixed_length/search.h"
#include "planners/mixed_length/step_planner.h"

namespace orrery::planners {
namespace {

class IntervalWise final : public StepPlanner {
 public:
  explicit IntervalWise(std::vector<PreparedStrategy> strategies)
      : strategies_(std::move(strategies)) {}

  const std::vector<PreparedStrategy>& strategies() const override { return strategies_; }

  StepDecision plan(std::span<const std::int64_t> lengths) const override {
    std::vector<std::vector<std::int64_t>> intervals(strategies_.size());
    for (const std::int64_t length : lengths) {
      intervals[static_cast<std::size_t>(strategy_for(strategies_, length))].push_back(length);
    }
    StepDecision decision;
    for (int i = static_cast<int>(strategies_.size()) - 1; i >= 0; --i) {
      const auto& own = intervals[static_cast<std::size_t>(i)];
      if (own.empty() && i > 0) continue;
      decision.push_back({i, balance(strategies_[static_cast<std::size_t>(i)], own),
                          i == 0 ? models::StepEnd::update : models::StepEnd::accumulate});
    }
    return decision;
  }

  models::SwitchBytes moved_inside_step(const models::StateBytes& bytes) const override {
    return accumulated_bytes(bytes);
  }
  models::SwitchBytes moved_between_steps(const models::StateBytes& bytes) const override {
    return {.weight = bytes.weight, .master = 0, .moments = 0};
  }

 private:
  std::vector<PreparedStrategy> strategies_;
};

std::unique_ptr<StepPlanner> with(std::vector<PreparedStrategy> strategies) {
  return std::make_unique<IntervalWise>(std::move(strategies));
}

StepPlannerResult make(const MixedLengthInput& input) {
  auto made = prepare_all(input);
  if (auto* no = std::get_if<models::Infeasible>(&made)) return std::move(*no);
  return with(std::move(std::get<std::vector<PreparedStrategy>>(made)));
}

StrategySearchResult search(const StrategySearchInput& input) {
  return search_strategies(input, {.by_interval = true, .homogeneous = true, .make = with});
}

constexpr const char* kDecides = "which pipeline of the interval's strategy takes a sequence";
constexpr const char* kIgnores =
    "the cost of switching when it assigns sequences; the search of strategies counts it";

}  // namespace

extern const StepPlannerEntry kHetuA;
extern const StepPlannerEntry kHotspa;

const StepPlannerEntry kHetuA = {
    "hetu_a", "Hetu v2, 7.3 and Table 10 (Hetu-A)", kDecides, kIgnores, make, search};
const StepPlannerEntry kHotspa = {"hotspa", "Hetu v2, 7.3 and Table 10 (HotSPa, Ge et al. 2024)",
                                  kDecides, kIgnores,
                                  make,     search};

}  // namespace orrery::planners
