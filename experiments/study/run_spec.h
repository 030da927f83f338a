/// One run: a plan (made by a planner or read from a file) judged by a cost model. The unit that
/// sweeps repeat, and what `orrery plan` and `orrery simulate` do once.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/hardware.h"
#include "models/check/trainer.h"
#include "models/config/visitor.h"
#include "models/spec/job.h"
#include "sim/iteration/options.h"

namespace orrery::experiments {

struct PlannerChoice {
  config::Located<std::string> name;
  std::map<std::string, std::string> options;
  std::map<std::string, config::Position> option_positions;  ///< Where a file gives them.
};

/// How a plan is judged.
enum class CostModel {
  simulator,              ///< sim/iteration.
  hexiscale_public_code,  ///< Closed form of HexiScale's public code; see docs/equations.md.
  hexiscale_paper,        ///< Closed form of HexiScale's Appendix A.
};

/// What is trained on what. Names of the library, or paths relative to the file that has them.
struct TrainingInputs {
  config::Located<std::string> cluster;
  config::Located<std::string> model;
  models::Job job;
  config::Position job_at;  ///< Where the file gives the job, for problems.
  std::optional<config::Located<std::string>> plan;
  std::optional<config::Located<std::string>> profile;
  std::optional<config::Located<std::string>> scale_profile;  ///< FROM=TO: GPU types.
};

/// Every input of a run; its dump is the effective config that is saved with the result.
struct RunSpec : TrainingInputs {
  std::optional<PlannerChoice> planner;  ///< Exactly one of planner and plan.
  HardwareChanges hardware;
  CostModel cost = CostModel::simulator;
  bool collapsed = true;  ///< Lowering; see models/lower. Planners always judge collapsed.
  sim::IterationOptions simulation;
  /// Where its slowdowns are given, for problems, if not with all the rest.
  config::Position stragglers_at;
  config::Position slow_links_at;
  std::int64_t work_budget = 0;  ///< Of the planner; 0: its own end.
  /// Plans of a planner that this runner cannot run are no plans; one with an option `target`
  /// searches for it (load_run()).
  std::optional<models::PlanRunner> executable_by;
  /// Plan file whose state is in place already, of planners that keep near to one.
  std::optional<config::Located<std::string>> near;
  double within = 0.05;  ///< planners::NearPlan.
  std::uint64_t seed = 0;
};

std::vector<std::pair<CostModel, const char*>> enum_names(CostModel);
void describe(config::Visitor& v, PlannerChoice& choice);
/// Cluster, model and job, and the measured numbers. The plan is left to the caller, because what
/// it means depends on the kind of run.
void describe_job(config::Visitor& v, TrainingInputs& inputs);
void describe_profile(config::Visitor& v, TrainingInputs& inputs);
void describe(config::Visitor& v, RunSpec& spec);

/// All that planners may use and the executor runs.
models::Allowed everything_allowed();
/// And what else this plan uses.
models::Allowed everything_allowed(const ir::Plan& plan);

/// A planner of the catalog that has an option of that name.
bool knows_option(const std::string& planner, const std::string& option);

/// Whether what a planner finds with these options depends on what GPUs draw, which the cluster's
/// hash leaves out.
bool power_decides(const std::map<std::string, std::string>& options);

/// Unknown planners, unknown options of a planner and values that it refuses.
void check_planner(const PlannerChoice& choice, config::Diagnostics& diagnostics);

}  // namespace orrery::experiments
