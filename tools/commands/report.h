/// What came out of one run, as plain records: what children hand to their parent, what `--json`
/// prints, what tables are made from.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/execute.h"
#include "models/config/visitor.h"
#include "models/ir/plan.h"

namespace orrery::tools {

/// Worst device of a GPU type.
struct MemoryRecord {
  std::string gpu;
  int device = 0;
  int pipeline = 0;
  int stage = 0;
  double need_bytes = 0;
  double have_bytes = 0;
  bool fits = false;
};

/// models::Evaluation in base units. Times of the breakdown are means over GPUs.
struct EvaluationRecord {
  double iteration_seconds = 0;
  std::vector<double> pipeline_seconds;
  /// Of closed forms: gradient synchronization, which no pipeline time contains.
  std::optional<double> synchronization_seconds;
  double compute_seconds = 0;
  double tensor_parallel_seconds = 0;
  double pipeline_communication_seconds = 0;
  double data_parallel_seconds = 0;
  double optimizer_seconds = 0;
  double bubble_seconds = 0;
  double tokens_per_second = 0;
  double mfu = 0;
  double hfu = 0;
  std::optional<double> dollars_per_million_tokens;  ///< Absent: a GPU type has no price.
  bool fits = false;
  std::string verdict;
  std::vector<MemoryRecord> memory;
};

struct RunnerUpRecord {
  std::string what;
  double estimate_seconds = 0;
  std::optional<double> evaluated_seconds;
};

struct ConstraintRecord {
  std::string constraint;
  std::int64_t rejected = 0;
  std::optional<double> best_without_seconds;
  std::string witness;
};

/// The busiest GPU of a stage in the simulated iteration.
struct StageRecord {
  int pipeline = 0;
  int stage = 0;
  double compute_seconds = 0;
  double tensor_parallel_seconds = 0;
  double transfer_seconds = 0;
  double bubble_seconds = 0;
  double busy_seconds() const { return compute_seconds + tensor_parallel_seconds; }
};

struct SearchRecord {
  std::optional<double> estimate_seconds;
  std::int64_t plans_examined = 0;
  std::int64_t rejected_by_memory = 0;
  std::int64_t work = 0;
  std::string work_unit;
  bool complete = true;
  std::vector<std::string> notes;
  std::string chosen;
  std::vector<RunnerUpRecord> runners_up;
  std::vector<ConstraintRecord> constraints;
};

struct InfeasibleRecord {
  std::string constraint;
  std::string witness;
};

/// One run. A plan with an evaluation, or a reason why there is none.
struct Report {
  std::string name;  ///< Planner or plan file.
  std::optional<InfeasibleRecord> infeasible;
  std::optional<EvaluationRecord> evaluation;
  std::optional<SearchRecord> search;
  std::vector<StageRecord> stages;  ///< Of the simulation; empty under a closed form.
  std::vector<std::string> busiest_links;
  std::vector<std::string> prices;  ///< Where op times come from.
  std::int64_t ranks = 0;           ///< Of the simulated program; 0 under a closed form.
  std::int64_t ops = 0;
  std::optional<ir::Plan> plan;
};

void describe(config::Visitor& v, MemoryRecord& memory);
void describe(config::Visitor& v, EvaluationRecord& evaluation);
void describe(config::Visitor& v, RunnerUpRecord& runner_up);
void describe(config::Visitor& v, ConstraintRecord& constraint);
void describe(config::Visitor& v, StageRecord& stage);
void describe(config::Visitor& v, SearchRecord& search);
void describe(config::Visitor& v, InfeasibleRecord& infeasible);
void describe(config::Visitor& v, Report& report);

/// `searched`: the plan comes from a planner, not from a file.
Report make_report(std::string name, bool searched, const experiments::RunOutcome& outcome);

}  // namespace orrery::tools
