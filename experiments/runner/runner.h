/// Sweeps: all runs of a manifest in forked workers, results as they finish, resumable.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "experiments/runner/manifest.h"
#include "models/spec/library.h"

namespace orrery::experiments {

/// Version of this program: part of every run's identity, so that results of another version are
/// not taken for its own.
std::string program_version();

struct RunnerOptions {
  std::string results_root = "results";
  int workers = 0;      ///< 0: one for each core.
  int shard_index = 1;  ///< `--shard i/n`: runs whose position is i - 1 modulo n.
  int shard_count = 1;
  bool dry_run = false;  ///< Nothing is written: see SweepResult::runs and estimate_seconds.
  bool figure = true;
  bool timelines = false;  ///< Write a Perfetto file for each run.
  bool quiet = false;
};

/// Called as runs start and finish, and a few times each second; for progress bars.
struct Progress {
  int total = 0;
  int done = 0;     ///< Of this call.
  int present = 0;  ///< Found finished from an earlier call.
  int failed = 0;
  double elapsed_seconds = 0;
  double remaining_seconds = -1;  ///< Negative: not known yet.
  std::string message;            ///< What just happened; "" when nothing did.
};

struct SweepResult {
  int total = 0;  ///< Runs of this shard.
  int present = 0;
  int done = 0;  ///< Finished by this call with a result, infeasible ones included.
  int failed = 0;
  bool interrupted = false;
  std::string results_folder;
  std::string runs_csv;
  std::vector<std::string> figures;   ///< Written by the plot script.
  std::vector<std::string> problems;  ///< Failures in words; any of them means exit status 1.
  std::vector<PlannedRun> runs;       ///< Of this shard, `hash` naming their folders.
  int missing = 0;                    ///< Runs that were to be done (in a dry run: that are).
  /// Of the missing runs on these workers, from timings.csv of earlier calls; negative: unknown.
  double estimate_seconds = -1;
};

/// Adds the problems of all runs, each once, and says how many runs there are. Also useful for a
/// manifest that has problems itself: what can be read of it is checked.
std::size_t check_runs(const Manifest& manifest, const models::Library& library,
                       config::Diagnostics& diagnostics);

/// Runs what is missing. Every run's folder appears whole or not at all (atomic rename); runs.csv
/// and timings.csv grow as runs finish and end in the order of the manifest, runs of other shards
/// included. A worker that dies leaves a failed row and failed/<hash>/log.txt; failed runs are
/// tried again by the next call. A full disk ends the sweep and keeps what is done. SIGINT and
/// SIGTERM end the sweep and keep what is done. Problems of the manifest or of files that it names
/// throw ConfigError before anything runs. No FlowEngine may exist in this process.
SweepResult run_sweep(const Manifest& manifest, const models::Library& library,
                      const RunnerOptions& options,
                      const std::function<void(const Progress&)>& on_progress);

}  // namespace orrery::experiments
