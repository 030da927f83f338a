/// Sweeps over the runs of a manifest.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "experiments/study/manifest.h"
#include "experiments/study/sweep.h"
#include "models/spec/library.h"

namespace orrery::experiments {

/// Version of this program: part of every run's identity, so that results of another version are
/// not taken for its own.
std::string program_version();

struct SweepResult : SweepOutcome {
  std::vector<PlannedRun> runs;  ///< Of this shard, `hash` naming their folders.
};

/// Adds the problems of all runs, each once, and says how many runs there are. Also useful for a
/// manifest that has problems itself: what can be read of it is checked.
std::size_t check_runs(const Manifest& manifest, const models::Library& library,
                       config::Diagnostics& diagnostics);

/// All runs of a manifest [sweep.h]. Problems of the manifest or of files that it names throw
/// ConfigError before anything runs.
SweepResult run_sweep(const Manifest& manifest, const models::Library& library,
                      const RunnerOptions& options,
                      const std::function<void(const Progress&)>& on_progress);

}  // namespace orrery::experiments
