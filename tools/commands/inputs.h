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
#include "tools/cli/args.h"

namespace orrery::tools {

/// Position of a flag in messages.
config::Position at_flag(const char* flag);

/// The library that ships with the source tree (or $ORRERY_LIBRARY).
models::Library open_library(config::Diagnostics& diagnostics);

/// Items of "a,b,c"; nothing of "".
std::vector<std::string> split(const std::string& text, char separator);

/// A whole number of at least `low` that a flag gives, or `fallback`.
std::int64_t whole_number(const Text& text, const char* flag, std::int64_t low,
                          std::int64_t fallback, config::Diagnostics& diagnostics);

/// The job of the flags, over the job file if there is one. With `plan` (a plan file), the global
/// batch defaults to the plan's, and without a job file all that a plan can use is allowed.
models::Job make_job(const JobArgs& args, const Text& plan, config::Diagnostics& diagnostics);

/// Everything but planner and plan.
experiments::RunSpec make_spec(const JobArgs& job, const JudgeArgs& judge, const Text& plan,
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
    const std::vector<std::string>& plans, const JobArgs& job, const JudgeArgs& judge,
    const std::function<void(models::Job&)>& complete = {});

}  // namespace orrery::tools
