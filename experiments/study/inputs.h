/// What every command is told: cluster, model and job, and how plans are judged. From these
/// settings to loaded and checked runs.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/cache_setting.h"
#include "experiments/study/execute.h"
#include "experiments/study/hardware.h"
#include "experiments/study/run_spec.h"
#include "models/config/diagnostics.h"
#include "models/spec/library.h"
#include "models/spec/plan_file.h"
#include "sim/iteration/options.h"

namespace orrery::experiments {

/// The position that messages give a setting of the command line: `global_batch` is at
/// "--global-batch".
config::Position at_setting(std::string key);

using Text = std::optional<std::string>;  ///< Empty: the flag was not given.

inline constexpr std::int64_t kDefaultBatch = 1024;
inline constexpr std::int64_t kDefaultLength = 4096;

/// What a job is that nobody describes.
enum class JobDefaults {
  of_the_plan,  ///< Its batch is that of the plan; its length must be given.
  fixed,        ///< kDefaultBatch and kDefaultLength.
  planning,     ///< The same, and planners may use ZeRO, sequence parallelism and interleaving.
};

/// What is trained on what: shared by all commands that judge plans.
struct JobSettings {
  JobDefaults defaults = JobDefaults::of_the_plan;  ///< Decided by the command, not by a flag.
  Text cluster;                                     ///< Name in the library, or a file.
  Text model;
  Text job;  ///< Job file; `changes` override what it says.
  /// Without a job file: what the job is that a plan file was made for; `changes` override it, too.
  std::optional<config::Value> of_plan;
  /// Where a plan file says what no flag did, by the key of the flag (take_origin()).
  std::map<std::string, config::Position> said_at;
  /// Values of the job's own settings (models::Job), by their path in a job file.
  std::map<std::string, config::Value> changes;
  Text profile;
  Text scale_profile;  ///< FROM=TO

  JobSettings() = default;
  explicit JobSettings(JobDefaults of_command) : defaults(of_command) {}
  bool gives(const std::string& path) const { return changes.contains(path); }
  /// Where neither a job nor a flag says it.
  void set_default(const std::string& path, std::int64_t value);
  /// JobDefaults::planning, likewise.
  void allow_by_default();
  /// Of a setting's value: the flag, or the plan file that says it in its place.
  config::Position at(const char* key) const;
};

void describe(config::Visitor& v, JobSettings& settings);
/// The keys of JobSettings::changes with their paths: ("zero_stages", "allowed.zero_stages").
std::vector<std::pair<std::string, std::string>> job_keys();

/// How plans are judged.
struct JudgeSettings {
  CostModel cost = CostModel::simulator;
  std::int64_t seed = 0;  ///< Of planner and jitter.
  sim::IterationOptions simulation;
  bool expanded = false;
  CacheSetting cache;
  HardwareChanges hardware;
  std::vector<std::string> given;  ///< Flags that the command line has.
};

void describe(config::Visitor& v, JudgeSettings& settings);

/// The library that ships with the source tree (or $ORRERY_LIBRARY).
models::Library open_library(config::Diagnostics& diagnostics);

/// A whole number of at least `low` of a setting, or `fallback`.
std::int64_t whole_number(const Text& text, const char* key, std::int64_t low,
                          std::int64_t fallback, config::Diagnostics& diagnostics);

/// Sets what `job` does not give to what the plan file says that it was made for, and returns in
/// words what that was ("cluster, model, job"); "": nothing. What is wrong with the file is left to
/// who uses the plan.
std::string take_origin(const ReadPlan& plan, JobSettings& job);

/// What a plan of this run is made for.
models::PlanOrigin origin_of(const RunSpec& spec);

/// Writes a plan for the cluster to a file; with `made_for`, later commands need not be told more.
/// Throws as write_file() does.
void write_plan(const std::string& path, ir::Plan plan, const models::Cluster& cluster,
                std::optional<models::PlanOrigin> made_for);

/// The job of the flags, over the job file if there is one. With `plan` (may be null), the global
/// batch defaults to the plan's, and without a job file all that a plan can use is allowed.
models::Job make_job(JobSettings args, const ReadPlan* plan, config::Diagnostics& diagnostics);

/// Global batch of a plan file that can be read; else 1, and whoever uses the plan reports why.
std::int64_t batch_of(const ReadPlan& plan);

/// What a job that a plan file comes with need not say: the plan's global batch, and that all is
/// allowed that a plan can use.
void complete_for_plan(config::Value& job, const ReadPlan& plan);

/// How the run is judged.
void judge_by(const JudgeSettings& judge, RunSpec& spec);

/// Everything but the planner. What no flag gives of a plan file's cluster, model and job is what
/// the plan was made for; null: no plan.
RunSpec make_spec(const JobSettings& job, const JudgeSettings& judge, const ReadPlan* plan,
                  config::Diagnostics& diagnostics);

/// After problems with flags: reports cluster and model too if they cannot be loaded, so that all
/// problems come at once.
void check_names(const RunSpec& spec, const models::Library& library,
                 config::Diagnostics& diagnostics);

/// Loads and checks a run of make_spec().
inline LoadedRun load(const RunSpec& spec, const models::Library& library,
                      config::Diagnostics& diagnostics) {
  return load_run(spec, "", library, diagnostics);
}

/// Runs that judge the plan files, loaded and checked. `complete` changes each job before it is
/// used. Throws ConfigError with all problems, those of the flags (`problems`) among them.
std::vector<LoadedRun> load_plans(const std::vector<std::string>& plans, const JobSettings& job,
                                  const JudgeSettings& judge,
                                  const std::function<void(models::Job&)>& complete = {},
                                  config::Diagnostics problems = {});

/// Reports where two runs of load_plans() have other clusters, models, jobs or measured numbers, so
/// that no one setting holds for both. A global batch is its plan's own, and what planners might
/// use limits no plan; neither counts.
void check_same_inputs(const LoadedRun& first, const LoadedRun& second,
                       config::Diagnostics& diagnostics);

}  // namespace orrery::experiments
