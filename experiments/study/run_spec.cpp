#include "experiments/study/run_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <variant>

#include "experiments/study/checks.h"
#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/mixed_length/step_planner.h"

namespace orrery::experiments {

std::vector<std::pair<CostModel, const char*>> enum_names(CostModel) {
  return {{CostModel::simulator, "simulator"},
          {CostModel::hexiscale_public_code, "hexiscale_public_code"},
          {CostModel::hexiscale_paper, "hexiscale_paper"}};
}

void describe(config::Visitor& v, PlannerChoice& choice) {
  v.title("Planner");
  v.required("name", choice.name, "planner of the catalog, see `orrery list planners`");
  describe_options(v, choice.options, choice.option_positions,
                   "options of the planner by name; absent ones have their defaults");
}

void describe_job(config::Visitor& v, TrainingInputs& inputs) {
  v.required("cluster", inputs.cluster, "cluster of the library, or path to a cluster file");
  v.required("model", inputs.model, "model of the library, or path to a model file or config.json");
  v.required("job", inputs.job, "batch, sequence length, numbers; or path to a job file");
  if (v.reading()) inputs.job_at = v.at("job");
}

void describe_profile(config::Visitor& v, TrainingInputs& inputs) {
  v.optional("profile", inputs.profile,
             "measured numbers: a profile of the library, or path to a file");
  v.optional("scale_profile", inputs.scale_profile,
             "FROM=TO: the profile's times of one GPU type, scaled, are used for another");
}

void describe(config::Visitor& v, RunSpec& spec) {
  v.title("Run");
  v.doc("A plan, made by a planner or read from a file, judged by a cost model.");
  describe_job(v, spec);
  v.optional("planner", spec.planner, "that makes the plan; either this or `plan`");
  v.optional("plan", spec.plan, "path to a plan file; either this or `planner`");
  describe_profile(v, spec);
  v.optional("hardware", spec.hardware, "changes to the cluster");
  v.optional("cost", spec.cost, "what judges the plan");
  v.optional("collapsed", spec.collapsed, "one simulated rank for each tensor-parallel group");
  v.optional("simulation", spec.simulation, "how an iteration is simulated");
  v.optional("work_budget", spec.work_budget, "most plans that a planner examines; 0: its own end");
  if (!v.dumping() || spec.executable_by) {
    v.optional("executable_by", spec.executable_by,
               "who is to run the planner's plan: megatron, flagscale or executor (Orrery's own); "
               "plans that it cannot run are refused");
  }
  if (!v.dumping() || spec.near) {
    v.optional(
        "near", spec.near,
        "plan file that is trained by now: the planner orrery then prefers the plan to which "
        "a switch moves least among those that are nearly as fast as the best");
    v.optional("within", spec.within, "of `near`: how much slower than the best, as a share");
    v.between("within", spec.within, 0.0, 10.0);
  }
  auto seed = static_cast<std::int64_t>(spec.seed);
  v.optional("seed", seed, "of the planner");
  v.not_negative("work_budget", spec.work_budget);
  v.not_negative("seed", seed);
  if (!v.reading()) return;
  spec.seed = static_cast<std::uint64_t>(seed);
  if (spec.planner && spec.plan) {
    v.problem("plan", "both `planner` and `plan` are given", "a run has one of them");
  } else if (!spec.planner && !spec.plan && v.good()) {
    v.problem("", "neither `planner` nor `plan` is given", "a run has one of them");
  }
}

models::Allowed everything_allowed(const ir::Plan& plan) {
  models::Allowed all = everything_allowed();
  const auto recomputes_experts = [](const ir::Segment& segment) {
    return segment.recompute == ir::Recompute::experts;
  };
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      if (std::none_of(stage.segments.begin(), stage.segments.end(), recomputes_experts)) continue;
      all.recompute.push_back(ir::Recompute::experts);
      return all;
    }
  }
  return all;
}

models::Allowed everything_allowed() {
  models::Allowed all;
  all.recompute = {ir::Recompute::none, ir::Recompute::selective, ir::Recompute::full};
  all.zero_stages = {0, 1, 2, 3};
  all.sequence_parallel = true;
  all.max_micro_batch_size = std::numeric_limits<int>::max();
  all.max_optimizer_offload = 1;
  all.schedules.clear();
  for (const models::ScheduleEntry* entry : models::schedules()) {
    all.schedules.push_back(entry->kind);
  }
  return all;
}

bool knows_option(const std::string& planner, const std::string& option) {
  const planners::PlannerEntry* entry = planners::find_planner(planner);
  if (entry == nullptr) return false;
  const auto options = entry->options();
  return std::any_of(options.begin(), options.end(),
                     [&](const planners::OptionInfo& info) { return info.name == option; });
}

bool power_decides(const std::map<std::string, std::string>& options) {
  const auto objective = options.find("objective");
  return objective != options.end() &&
         (objective->second == "energy" || objective->second == "frontier");
}

void check_planner(const PlannerChoice& choice, config::Diagnostics& diagnostics) {
  const planners::PlannerEntry* entry = planners::find_planner(choice.name.value);
  if (entry == nullptr) {
    diagnostics.add(choice.name.at, fmt::format("unknown planner '{}'", choice.name.value),
                    planners::unknown_planner_hint(choice.name.value));
    return;
  }
  const auto position = [&](const std::string& name) {
    const auto found = choice.option_positions.find(name);
    return found == choice.option_positions.end() ? choice.name.at : found->second;
  };
  std::vector<std::string> known;
  for (const planners::OptionInfo& info : entry->options()) known.emplace_back(info.name);
  planners::Options options;
  for (const auto& [name, value] : choice.options) {
    if (std::find(known.begin(), known.end(), name) != known.end()) {
      options.emplace_back(name, value);
      continue;
    }
    diagnostics.add(position(name),
                    fmt::format("planner '{}' has no option '{}'", entry->name, name),
                    known.empty() ? "it has none" : config::suggest(name, known, "options"));
  }
  const config::Diagnostics found = entry->check(options);
  for (const config::Problem& problem : found.problems()) {
    const std::string& name = problem.at.file;
    diagnostics.add(position(name), fmt::format("option '{}': {}", name, problem.what),
                    problem.hint);
  }
}

}  // namespace orrery::experiments
