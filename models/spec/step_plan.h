/// A step of mixed lengths that is planned to the last sequence: which plans run one after another
/// inside it, and the length of every micro-batch. What a step planner decides, as a file, so that
/// it can be simulated again.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "models/config/visitor.h"
#include "models/ir/plan.h"

namespace orrery::models {

/// YAML (`schema: orrery/step_plan/1`). The last phase updates the weights, those before it
/// accumulate gradients.
struct PlannedStep {
  struct Phase {
    ir::Plan plan;
    ir::LengthRange length_range;  ///< Of the phase's sequences; empty micro-batches count as 0.
    /// Tokens of the micro-batches of each pipeline of the plan; 0: an empty one.
    std::vector<std::vector<std::int64_t>> lengths;
  };
  std::string planner;  ///< Who made it, for tables; not interpreted.
  std::vector<Phase> phases;

  /// The plans alone.
  ir::StepPlan plans() const;
};

/// Each phase has as many lists of lengths as its plan has pipelines and as many lengths as the
/// pipeline has micro-batches, of one sequence each, inside the phase's range, and no staggered
/// optimizer; or a problem.
void describe(config::Visitor& v, PlannedStep::Phase& phase);
void describe(config::Visitor& v, PlannedStep& step);

PlannedStep load_step_plan(const std::string& path, config::Diagnostics& diagnostics);

/// YAML without what the defaults say anyway. Equal steps give equal bytes, and reading it gives an
/// equal step.
std::string dump_step_plan(const PlannedStep& step);

/// True if the file's `schema` line names a step plan.
bool is_step_plan(const std::string& path);

}  // namespace orrery::models
