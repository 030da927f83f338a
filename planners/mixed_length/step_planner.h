/// Planners for jobs whose steps mix sequences of many lengths: given strategies, they decide for
/// each step which strategies run one after another and which pipeline takes which sequence. The
/// strategy can change inside a step or between steps. One .cpp per planner, all listed in
/// step_planner.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/interfaces/evaluator.h"
#include "models/ir/plan.h"
#include "models/lower/micro_batch_lengths.h"
#include "models/reshard/reshard_plan.h"
#include "models/spec/step_plan.h"
#include "planners/mixed_length/prepared_strategy.h"

namespace orrery::planners {

/// A part of a step under one strategy.
struct StepPhase {
  int strategy = 0;  ///< Index into StepPlanner::strategies().
  models::MicroBatchLengths lengths;
  models::StepEnd end = models::StepEnd::update;
  auto operator<=>(const StepPhase&) const = default;
};

/// Phases in order; the last one updates, those before accumulate gradients.
using StepDecision = std::vector<StepPhase>;

class StepPlanner {
 public:
  /// `strategies` ascend by the longest sequence that they serve; the last one serves `context`.
  StepPlanner(std::vector<PreparedStrategy> strategies, std::int64_t context)
      : strategies_(std::move(strategies)), context_(context) {}
  virtual ~StepPlanner() = default;
  const std::vector<PreparedStrategy>& strategies() const { return strategies_; }
  /// `lengths` are the sequences of the step, none longer than the context.
  virtual StepDecision plan(std::span<const std::int64_t> lengths) const = 0;
  /// Bytes per parameter that move when the strategy changes inside a step, and from one step to
  /// the next. Reduced gradients lie where ZeRO keeps the optimizer states, and count as `master`.
  virtual models::ReshardBytes moved_inside_step(const models::StateBytes&) const {
    return {0, 0, 0};
  }
  virtual models::ReshardBytes moved_between_steps(const models::StateBytes&) const {
    return {0, 0, 0};
  }

 protected:
  /// Index of the first strategy that serves `length`. Aborts if there is none.
  int strategy_for(std::int64_t length) const;
  std::int64_t context() const { return context_; }

 private:
  std::vector<PreparedStrategy> strategies_;
  std::int64_t context_;
};

/// Answers of the simulator for searches: planners cannot look into it.
class StepJudge {
 public:
  virtual ~StepJudge() = default;
  /// A part of a step alone.
  virtual Seconds phase_time(const PreparedStrategy& strategy,
                             const models::MicroBatchLengths& lengths,
                             models::StepEnd end) const = 0;
  /// The transfers of a change of strategy; nothing where no bytes move.
  virtual Seconds switch_time(const ir::Plan& from, const ir::Plan& to,
                              const models::ReshardBytes& bytes) const = 0;
};

struct StrategySearchInput {
  const MixedLengthInput& input;  ///< `input.set.search` says how; its strategies are empty.
  std::span<const std::vector<std::int64_t>> steps;  ///< Samples, run one after another.
  const StepJudge& judge;
};

struct FoundStrategies {
  StrategySet set;              ///< The best set, with what the input says otherwise.
  Seconds modeled;              ///< Mean over the samples, as the search believes.
  Seconds simulated;            ///< The same from the judge alone.
  std::int64_t strategies = 0;  ///< Examined: pipelines for an interval of lengths.
  std::int64_t sets = 0;        ///< Examined with their switches.
};

using StrategySearchResult = std::variant<FoundStrategies, models::Infeasible>;

using StepPlannerResult = std::variant<std::unique_ptr<StepPlanner>, models::Infeasible>;

/// How a step planner uses its strategies.
struct StrategyRule {
  std::unique_ptr<StepPlanner> (*with)(std::vector<PreparedStrategy> strategies,
                                       std::int64_t context);
  /// All intervals one after another inside a step, longest first, update under the shortest one;
  /// false: the whole step under the strategy of its longest sequence.
  bool by_interval = false;
  bool homogeneous = false;  ///< One kind of pipeline in a strategy.
  /// Sequences are packed into windows of the context's length, under one strategy for all steps.
  bool packed = false;
  /// Pipelines of the strategies that a search tries; null: candidate_pipelines().
  std::vector<std::vector<PipelineKind>> (*candidates)(int devices, int layers,
                                                       const StrategySearch& search) = nullptr;
};

/// StrategyRule::with for the class P.
template <class P>
std::unique_ptr<StepPlanner> step_planner_with(std::vector<PreparedStrategy> strategies,
                                               std::int64_t context) {
  return std::make_unique<P>(std::move(strategies), context);
}

struct StepPlannerEntry {
  const char* name;
  const char* source;   ///< Paper and section.
  const char* decides;  ///< One line.
  const char* ignores;  ///< One line: what it assumes or leaves out.
  StrategyRule rule;

  /// The planner for the strategies of the input's set. Keeps references to the pricer and the
  /// topology of the input. Infeasible where a strategy does not fit the cluster or none serves the
  /// context.
  StepPlannerResult make(const MixedLengthInput& input) const;
  /// Finds strategies that make() takes.
  StrategySearchResult search(const StrategySearchInput& input) const;
};

std::span<const StepPlannerEntry* const> step_planners();
/// nullptr when there is none of that name.
const StepPlannerEntry* find_step_planner(const std::string& name);
std::vector<std::string> step_planner_names();

/// Hint for a name that is no planner of planners/catalog.h: the command for step planners, else
/// the most similar planner.
std::string unknown_planner_hint(const std::string& name);

/// Bytes that move when the strategy changes while gradients accumulate: weights (`weight`) and the
/// gradients so far (`master`: once reduced they lie where ZeRO keeps the optimizer states).
models::ReshardBytes accumulated_bytes(const models::StateBytes& bytes);

/// The decision as a value that says what runs: a plan for each phase, with the lengths in it.
/// `planner` of the result is empty.
models::PlannedStep to_planned_step(const StepPlanner& planner, const StepDecision& decision);

}  // namespace orrery::planners
