#include "models/spec/step_plan.h"

#include <fmt/format.h>

#include <filesystem>

#include "models/config/document.h"
#include "models/config/schema_of.h"
#include "models/config/sparse.h"
#include "models/ir/names.h"
#include "models/spec/plan_yaml.h"

namespace orrery::models {
namespace {

/// What does not fit together in a phase; "": nothing.
std::string find_problem(const PlannedStep::Phase& phase) {
  const auto& pipelines = phase.plan.pipelines;
  if (phase.lengths.size() != pipelines.size()) {
    return fmt::format("{} lists of lengths for {} pipelines", phase.lengths.size(),
                       pipelines.size());
  }
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    if (std::ssize(phase.lengths[p]) != pipelines[p].micro_batches) {
      return fmt::format("pipeline {} has {} micro-batches and {} lengths", p,
                         pipelines[p].micro_batches, phase.lengths[p].size());
    }
    if (pipelines[p].micro_batch_size != 1) {
      return fmt::format("pipeline {} has {} sequences in a micro-batch; lengths are of one", p,
                         pipelines[p].micro_batch_size);
    }
    for (const std::int64_t length : phase.lengths[p]) {
      if (length < phase.length_range.shortest || length > phase.length_range.longest) {
        return fmt::format("pipeline {} has a sequence of {} tokens, outside of {} to {}", p,
                           length, phase.length_range.shortest, phase.length_range.longest);
      }
    }
  }
  return "";
}

}  // namespace

ir::StepPlan PlannedStep::plans() const {
  ir::StepPlan step;
  for (const Phase& phase : phases) step.phases.push_back({phase.plan, phase.length_range});
  return step;
}

void describe(config::Visitor& v, PlannedStep::Phase& phase) {
  v.title("Phase");
  v.doc("A part of a step under one plan.");
  v.required("length_range", phase.length_range, "of its sequences");
  v.required("lengths", phase.lengths,
             "tokens of the micro-batches of each pipeline; 0: an empty one");
  v.required("plan", phase.plan, "with a `schema` line of its own");
  if (!v.reading() || !v.good()) return;
  if (phase.plan.optimizer != ir::OptimizerStart::together) {
    v.problem("plan", fmt::format("optimizer {}: phases of a step follow one another on all ranks",
                                  ir::name_of(phase.plan.optimizer)));
  }
  const std::string problem = find_problem(phase);
  if (!problem.empty()) v.problem("lengths", problem);
}

void describe(config::Visitor& v, PlannedStep& step) {
  v.schema("orrery/step_plan", 1);
  v.title("Step plan");
  v.doc("A step of mixed lengths that is planned to the last sequence.");
  v.optional("planner", step.planner, "who made it");
  v.required("phases", step.phases, "in the order in which they run; the last one updates");
  v.not_empty("phases", step.phases);
}

PlannedStep load_step_plan(const std::string& path, config::Diagnostics& diagnostics) {
  return config::load_file<PlannedStep>(path, diagnostics);
}

std::string dump_step_plan(const PlannedStep& step) {
  return config::to_yaml(config::sparse(step, {"schedule"}));
}

bool is_step_plan(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  return config::schema_of(path).starts_with("orrery/step_plan/");
}

}  // namespace orrery::models
