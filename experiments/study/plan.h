/// Plans of one planner or several, simulated and compared: what `orrery plan` does.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/execute.h"
#include "experiments/study/inputs.h"
#include "experiments/study/robust_plan.h"

namespace orrery::experiments {

/// Plans of each planner that the judge times where several planners are compared, so that all
/// have the same access to it; `-o evaluate_top=N` says another number.
inline constexpr int kJudgedInComparisons = 8;

struct PlanSettings {
  JobSettings job{JobDefaults::planning};
  JudgeSettings judge;
  std::vector<std::string> planners{"orrery"};  ///< Names; "all" is every one of the catalog.
  std::map<std::string, std::string> options;   ///< Of the planners that know them.
  std::optional<std::int64_t> work_budget;
  /// RunSpec's of the same names.
  std::optional<models::PlanRunner> executable_by;
  Text near;
  std::optional<double> within;
  Text output;
  Text timeline;
  /// With a trace: the plan is chosen together with how it recovers (robust_plan.h).
  RobustChoices robust{"robust"};
};
void describe(config::Visitor& v, PlanSettings& settings);

struct PlanResult {
  std::string cluster;
  std::string model;
  std::optional<std::string> best;  ///< Planner with the shortest simulated time; none: no plan.
  std::vector<RunReport> planners;  ///< As asked for; empty with `robust`.
  std::optional<RobustResult> robust;
  LoadedRun inputs;          ///< What all plans are for; not described.
  bool interrupted = false;  ///< These are the best plans so far; not described.
  const RunReport* best_report() const;
};
void describe(config::Visitor& v, PlanResult& result);
int exit_status(const PlanResult& result);

/// `problems`: those found in the settings so far; they are raised together with what else is
/// wrong. Canceled, it comes back with the best plans so far.
PlanResult plan(const PlanSettings& settings, const Call& call, config::Diagnostics problems = {});

}  // namespace orrery::experiments
