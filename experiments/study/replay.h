/// Replay studies: every policy of every case on every seed's trace, in forked workers, resumable
/// (sweep.h); one run is a policy under one trace (replay_session.h).
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "experiments/study/replay_file.h"
#include "experiments/study/replay_result.h"
#include "experiments/study/sweep.h"
#include "models/spec/library.h"

namespace orrery::experiments {

struct ReplayStudyResult : SweepOutcome {
  std::vector<ReplayRun> runs;       ///< Of this shard, `hash` naming their folders.
  std::vector<std::string> skipped;  ///< Cases whose data is not there, in words.
  std::vector<std::string> cases;    ///< What is replayed where, in words.
  double planning_seconds = 0;       ///< Wall clock of the runs that are there, by timings.csv.
  double evaluation_seconds = 0;
  double total_seconds = 0;
};

/// All runs of a study, without hashes: cases, policies, points of the policy's axes, seeds.
std::vector<ReplayRun> expand(const ReplayStudy& study);

/// Adds what is wrong with the files and names of all cases, and says how many runs there are.
std::size_t check_replay_study(const ReplayStudy& study, const models::Library& library,
                               config::Diagnostics& diagnostics);

/// All runs of expand(). Problems of what the
/// study names, and option values that a policy refuses, throw ConfigError before anything runs. A
/// case whose data below $ORRERY_DATA is absent is left out and named in `skipped`. No FlowEngine
/// may exist in this process.
ReplayStudyResult run_replay_study(const ReplayStudy& study, const models::Library& library,
                                   const RunnerOptions& options,
                                   const std::function<void(const Progress&)>& on_progress);

}  // namespace orrery::experiments
