/// The job of a run for real: number format and state bytes are those of the ranks, so that the
/// program, the planner's and the policy's judge, and `orrery compare` speak of what runs. Private
/// to the execute command.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "executor/launcher/settings.h"
#include "models/config/diagnostics.h"
#include "models/spec/job.h"
#include "tools/commands/execute_settings.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {

ir::Dtype dtype_of(executor::Precision precision);

/// What the executor holds of each parameter. Where gradients and optimizer states have the
/// precision of the weights, these are their own master copy. [executor/model/shard.h]
models::StateBytes held_bytes(executor::Precision precision, ir::Optimizer optimizer);

/// A --dtype that is not --precision is a problem.
void check_dtype(const ExecuteSettings& args, executor::Precision precision,
                 config::Diagnostics& diagnostics);

/// Sets the cluster, model, job and profile that no flag gives from the run.yaml beside the plan,
/// where `orrery execute --out` has written one: the job if neither --job nor --sequence-length is
/// given, the profile with the cluster. Returns a line that says so; empty: nothing was taken.
/// Throws ConfigError with what is wrong with such a file.
std::string take_run_inputs(ExecuteSettings& args);

struct ExecutedJob {
  JobSettings args;  ///< With the dtype of `precision`, unless the job file gives one.
  bool held = true;  ///< The job file has no state_bytes: they are held_bytes().
  executor::Precision precision = executor::Precision::fp32;
  std::string note;  ///< Where the job's dtype is not that of the ranks, and why; empty: it is.

  /// Sets the state bytes, for load_plans().
  void complete(models::Job& job) const;
};

/// Call it without problems so far. A GPU type of the cluster file that does not compute in
/// `precision`, or a plan of `plans` (files) that says it was made for the default dtype, leaves
/// the dtype as it is: the ranks can run, and are predicted with that.
ExecutedJob executed_job(const ExecuteSettings& args, executor::Precision precision,
                         const std::vector<std::string>& plans);

}  // namespace orrery::tools
