/// From flags to run specifications: values of flags go through the config reader, so that they are
/// checked and reported like those of files.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/execute.h"
#include "experiments/study/run_spec.h"
#include "models/config/diagnostics.h"
#include "models/spec/library.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {

using Text = std::optional<std::string>;  ///< Empty: the flag was not given.

/// What is trained on what: shared by all commands that judge plans.
struct JobSettings {
  Text cluster;  ///< Name in the library, or a file.
  Text model;
  Text job;  ///< Job file; the flags below override what it says.
  Text global_batch;
  Text sequence_length;
  Text dtype;
  Text recompute;  ///< Comma-separated, as all lists below.
  Text zero_stages;
  Text schedules;
  Text max_tensor_parallel;
  Text max_micro_batch_size;
  bool sequence_parallel = false;
  Text profile;
  Text scale_profile;  ///< FROM=TO
};

/// The job of `orrery plan` where neither a job file nor flags say more.
inline constexpr const char* kDefaultBatch = "1024";
inline constexpr const char* kDefaultLength = "4096";

/// What the help says of the batch that nobody gives.
enum class BatchDefault { of_the_plan, fixed };
void describe(config::Visitor& v, JobSettings& settings, BatchDefault batch);

/// How plans are judged.
struct JudgeSettings {
  Text cost;
  Text seed;
  Text jitter;
  std::vector<std::string> stragglers;  ///< device=factor
  std::vector<std::string> slow_links;  ///< link=factor
  Text inner;
  Text ring;
  bool expanded = false;
};

void describe(config::Visitor& v, JudgeSettings& settings);

/// The flag --json.
void describe_json(config::Visitor& v, bool& json);

/// The library that ships with the source tree (or $ORRERY_LIBRARY).
models::Library open_library(config::Diagnostics& diagnostics);

/// A whole number of at least `low` that a flag gives, or `fallback`.
std::int64_t whole_number(const Text& text, const char* flag, std::int64_t low,
                          std::int64_t fallback, config::Diagnostics& diagnostics);

/// The job of the flags, over the job file if there is one. With `plan` (a plan file), the global
/// batch defaults to the plan's, and without a job file all that a plan can use is allowed.
models::Job make_job(const JobSettings& args, const Text& plan, config::Diagnostics& diagnostics);

/// Everything but planner and plan.
experiments::RunSpec make_spec(const JobSettings& job, const JudgeSettings& judge, const Text& plan,
                               config::Diagnostics& diagnostics);

/// After problems with flags: reports cluster and model too if they cannot be loaded, so that all
/// problems come at once.
void check_names(const experiments::RunSpec& spec, const models::Library& library,
                 config::Diagnostics& diagnostics);

/// Loads and checks a run of make_spec(). Stragglers and slow links that the cluster does not have
/// are reported at their flags.
experiments::LoadedRun load(const experiments::RunSpec& spec, const models::Library& library,
                            config::Diagnostics& diagnostics);

/// Runs that judge the plan files, loaded and checked. `complete` changes each job before it is
/// used. Throws ConfigError with all problems.
std::vector<experiments::LoadedRun> load_plans(
    const std::vector<std::string>& plans, const JobSettings& job, const JudgeSettings& judge,
    const std::function<void(models::Job&)>& complete = {});

}  // namespace orrery::tools
