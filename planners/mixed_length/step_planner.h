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

#include "models/decide/evaluator.h"
#include "models/ir/plan.h"
#include "models/lower/micro_batch_lengths.h"
#include "models/switch/switch_plan.h"
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

using StepPlannerResult = std::variant<std::unique_ptr<StepPlanner>, models::Infeasible>;

struct StepPlannerEntry {
  const char* name;
  const char* source;   ///< Paper and section.
  const char* decides;  ///< One line.
  const char* ignores;  ///< One line: what it assumes or leaves out.
  /// Keeps references to the pricer and the topology of the input.
  StepPlannerResult (*make)(const MixedLengthInput& input);
};

std::span<const StepPlannerEntry* const> step_planners();
/// nullptr when there is none of that name.
const StepPlannerEntry* find_step_planner(const std::string& name);

/// All strategies of the input's set, in their order.
std::variant<std::vector<PreparedStrategy>, models::Infeasible> prepare_all(
    const MixedLengthInput& input);

/// Index of the first strategy that serves `length`; the strategies ascend. Aborts if there is
/// none.
int strategy_for(const std::vector<PreparedStrategy>& strategies, std::int64_t length);

/// The decision as a value that says what runs: a plan for each phase, with the lengths in it.
ir::StepPlan to_step_plan(const StepPlanner& planner, const StepDecision& decision);

}  // namespace orrery::planners
