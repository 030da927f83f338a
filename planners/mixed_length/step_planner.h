/// Planners for jobs whose steps mix sequences of many lengths: strategies go in, and for each step
/// comes out which strategies run one after another and which sequence goes to which pipeline. A
/// small interface beside Planner: a decision is made for each step, and plans are switched inside
/// a step or between steps. One .cpp a planner, listed in step_planner.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "models/interfaces/evaluator.h"
#include "models/ir/plan.h"
#include "models/lower/micro_batch_lengths.h"
#include "models/reshard/switch_plan.h"
#include "models/spec/step_plan.h"
#include "planners/mixed_length/strategy.h"

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
  virtual ~StepPlanner() = default;
  virtual const std::vector<PreparedStrategy>& strategies() const = 0;
  /// `lengths` are the sequences of the step, none longer than the context.
  virtual StepDecision plan(std::span<const std::int64_t> lengths) const = 0;
  /// Bytes per parameter that move when the strategy changes inside a step, and from one step to
  /// the next. Gradients that were reduced lie where ZeRO's optimizer states lie: they stand as
  /// `master`.
  virtual models::SwitchBytes moved_inside_step(const models::StateBytes& bytes) const = 0;
  virtual models::SwitchBytes moved_between_steps(const models::StateBytes& bytes) const = 0;
};

/// What the simulator says, for searches: planners cannot look into it.
class StepJudge {
 public:
  virtual ~StepJudge() = default;
  /// A part of a step alone.
  virtual Seconds phase_time(const PreparedStrategy& strategy,
                             const models::MicroBatchLengths& lengths,
                             models::StepEnd end) const = 0;
  /// The transfers of a change of strategy; nothing where no bytes move.
  virtual Seconds switch_time(const ir::Plan& from, const ir::Plan& to,
                              const models::SwitchBytes& bytes) const = 0;
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

struct StepPlannerEntry {
  const char* name;
  const char* source;   ///< Paper and section.
  const char* decides;  ///< One line.
  const char* ignores;  ///< One line: what it assumes or leaves out.
  /// Keeps references to the pricer and the topology of the input.
  StepPlannerResult (*make)(const MixedLengthInput& input);
  /// Finds the strategies that make() takes; nullptr: they have to be given.
  StrategySearchResult (*search)(const StrategySearchInput& input);
};

std::span<const StepPlannerEntry* const> step_planners();
/// nullptr when there is none of that name.
const StepPlannerEntry* find_step_planner(const std::string& name);
std::vector<std::string> step_planner_names();

/// Hint for a name that is no planner of planners/catalog.h: the command for step planners, else
/// the most similar planner.
std::string unknown_planner_hint(const std::string& name);

/// All strategies of the input's set, in their order.
std::variant<std::vector<PreparedStrategy>, models::Infeasible> prepare_all(
    const MixedLengthInput& input);

/// Index of the first strategy that serves `length`; the strategies ascend. Aborts if there is
/// none.
int strategy_for(const std::vector<PreparedStrategy>& strategies, std::int64_t length);

/// What moves when the strategy changes while gradients accumulate: weights, and the gradients so
/// far. These are reduced and lie where ZeRO's optimizer states lie: they stand as `master`.
models::SwitchBytes accumulated_bytes(const models::StateBytes& bytes);

/// The decision as a value that says what runs: a plan for each phase, with the lengths in it.
/// `planner` of the result is empty.
models::PlannedStep to_planned_step(const StepPlanner& planner, const StepDecision& decision);

}  // namespace orrery::planners
