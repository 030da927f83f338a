/// What the flags of `orrery replay` say, as a study.
#pragma once
#include <string>

#include "experiments/runner/replay_file.h"
#include "experiments/runner/sweep.h"
#include "models/config/diagnostics.h"
#include "tools/args.h"

namespace orrery::tools {

/// Name of a study's file in its folder.
inline constexpr const char* kStudyFile = "replay.yaml";

/// The study of the file, with the flags --policy and --seeds over it; or that of the flags.
experiments::ReplayStudy study_of(const ReplayArgs& args, config::Diagnostics& diagnostics);

experiments::RunnerOptions runner_options(const ReplayArgs& args, config::Diagnostics& diagnostics);

/// "1/4" of --shard.
void read_shard(const Text& text, experiments::RunnerOptions& options,
                config::Diagnostics& diagnostics);

/// True if `path` is a study (by its `schema` line), or a folder with a replay.yaml and no
/// manifest.yaml.
bool is_study(const std::string& path);

}  // namespace orrery::tools
