/// What the ranks of a run compute: the job in their number format and with the bytes that they
/// hold, and plans as programs that they can run. So the planner's and the policy's judge, and
/// `orrery compare`, speak of what runs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "executor/launcher/settings.h"
#include "experiments/study/execute.h"
#include "experiments/study/inputs.h"
#include "models/config/diagnostics.h"
#include "models/ir/program.h"
#include "models/spec/job.h"

namespace orrery::experiments {

ir::Dtype dtype_of(executor::Precision precision);

/// What the executor holds of each parameter. Where gradients and optimizer states have the
/// precision of the weights, these are their own master copy. [executor/model/shard.h]
models::StateBytes held_bytes(executor::Precision precision, ir::Optimizer optimizer);

/// Sets the cluster, model, job and profile that `job` does not give from the plan file
/// (take_origin()), else from the run.yaml next to it, where `orrery execute --out` has written
/// one: the job if neither it nor a sequence length is given, the profile with the cluster. Returns
/// a line that says so; empty: nothing was taken. Throws ConfigError with what is wrong with
/// run.yaml.
std::string take_run_inputs(const std::string& plan, JobSettings& job);

struct RankJob {
  JobSettings settings;  ///< With the dtype of `precision`, unless the job file gives one.
  bool held = true;      ///< The job file has no state_bytes: they are held_bytes().
  executor::Precision precision = executor::Precision::fp32;
  std::string note;  ///< Where the job's dtype is not that of the ranks, and why; empty: it is.

  /// Sets the state bytes, for load_plans().
  void complete(models::Job& job) const;
};

/// A GPU type of the cluster file that does not compute in `precision`, or a plan of `plans`
/// (files) that says it was made for the default dtype, leaves the dtype as it is: the ranks can
/// run, and are predicted with that.
RankJob rank_job(const JobSettings& job, executor::Precision precision,
                 const std::vector<std::string>& plans);

/// "no plan (constraint): for example witness", in one line, of a report without a plan.
std::string no_plan_text(const RunReport& report);

/// A plan as a program with one rank for each device, and what keeps a valid plan from being run
/// for real, in words; empty: nothing.
struct ExecutableProgram {
  ir::Program program;
  std::vector<std::string> problems;
};

/// `seed` is that of the initial weights.
ExecutableProgram lower_for_ranks(const LoadedRun& run, const ir::Plan& plan, std::uint64_t seed);

}  // namespace orrery::experiments
