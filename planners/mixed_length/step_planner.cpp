#include "planners/mixed_length/step_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/base/check.h"
#include "models/config/diagnostics.h"
#include "planners/catalog.h"
#include "planners/kit/integers.h"
#include "planners/mixed_length/search.h"

namespace orrery::planners {

extern const StepPlannerEntry kHetuA;
extern const StepPlannerEntry kHetuB;
extern const StepPlannerEntry kHotspa;
extern const StepPlannerEntry kPackedDeepspeed;
extern const StepPlannerEntry kPackedMegatron;

std::span<const StepPlannerEntry* const> step_planners() {
  static constexpr std::array<const StepPlannerEntry*, 5> kAll = {
      &kHetuA, &kHetuB, &kHotspa, &kPackedDeepspeed, &kPackedMegatron};
  return kAll;
}

const StepPlannerEntry* find_step_planner(const std::string& name) {
  for (const StepPlannerEntry* entry : step_planners()) {
    if (entry->name == name) return entry;
  }
  return nullptr;
}

std::vector<std::string> step_planner_names() {
  std::vector<std::string> names;
  for (const StepPlannerEntry* entry : step_planners()) names.emplace_back(entry->name);
  return names;
}

std::string unknown_planner_hint(const std::string& name) {
  if (names_python(name)) return kPythonHint;
  if (find_step_planner(name) == nullptr) return config::suggest(name, planner_names(), "planners");
  return fmt::format(
      "{} plans steps of sequences of mixed lengths: orrery mixed-length, orrery list "
      "step-planners",
      name);
}

int StepPlanner::strategy_for(std::int64_t length) const {
  const auto found = std::find_if(strategies_.begin(), strategies_.end(),
                                  [&](const auto& one) { return length <= one.longest(); });
  ORRERY_CHECK(found != strategies_.end(), "no strategy serves {} tokens", length);
  return static_cast<int>(found - strategies_.begin());
}

StepPlannerResult StepPlannerEntry::make(const MixedLengthInput& input) const {
  if (rule.packed && input.set.strategies.size() != 1) {
    return models::Infeasible{"one strategy", "packing runs every step under one strategy"};
  }
  std::vector<PreparedStrategy> strategies;
  for (const LengthStrategy& strategy : input.set.strategies) {
    auto made = PreparedStrategy::make(input, strategy);
    if (auto* no = std::get_if<models::Infeasible>(&made)) return std::move(*no);
    strategies.push_back(std::move(std::get<PreparedStrategy>(made)));
  }
  if (strategies.empty() || strategies.back().longest() < input.context) {
    return models::Infeasible{"context", "no strategy serves sequences of the context's length"};
  }
  for (int p = 0; rule.packed && p < strategies.front().pipelines(); ++p) {
    if (strategies.front().limit(p) < input.context) {
      return models::Infeasible{"device memory", "a pipeline does not hold one window"};
    }
  }
  return rule.with(std::move(strategies), input.context);
}

StrategySearchResult StepPlannerEntry::search(const StrategySearchInput& input) const {
  return search_strategies(input, rule);
}

models::ReshardBytes accumulated_bytes(const models::StateBytes& bytes) {
  return {.weight = bytes.weight, .master = bytes.gradient, .moments = 0};
}

models::PlannedStep to_planned_step(const StepPlanner& planner, const StepDecision& decision) {
  models::PlannedStep step;
  for (const StepPhase& phase : decision) {
    const auto& strategy = planner.strategies()[phase.strategy];
    ir::Plan plan = strategy.plan_for(phase.lengths);
    ir::LengthRange all{strategy.longest(), 0};
    for (std::size_t p = 0; p < phase.lengths.size(); ++p) {
      const auto [low, high] =
          std::minmax_element(phase.lengths[p].begin(), phase.lengths[p].end());
      plan.pipelines[p].length_range = ir::LengthRange{*low, *high};
      all = {std::min(all.shortest, *low), std::max(all.longest, *high)};
    }
    step.phases.push_back({std::move(plan), all, phase.lengths});
  }
  return step;
}

}  // namespace orrery::planners
