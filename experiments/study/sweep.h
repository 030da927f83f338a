/// Sweeps: runs of a set in forked workers, results as they finish, resumable.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/run_set.h"

namespace orrery::experiments {

struct RunnerOptions {
  std::string results_root = "results";
  int workers = 0;      ///< 0: one for each core.
  int shard_index = 1;  ///< `--shard i/n`: runs whose position is i - 1 modulo n.
  int shard_count = 1;
  bool dry_run = false;  ///< Nothing is written: see `positions` and `estimate_seconds`.
  bool figure = true;
  bool timelines = false;  ///< Write a Perfetto file for each run.
  bool quiet = false;
};

struct SweepOutcome {
  int total = 0;    ///< Runs of this shard.
  int present = 0;  ///< There already, or equal to one before it: one result serves both.
  int done = 0;     ///< Finished by this call with a result, infeasible ones included.
  int failed = 0;
  bool interrupted = false;
  std::string results_folder;
  std::string runs_csv;
  std::vector<std::string> figures;    ///< Written by the plot script.
  std::vector<std::string> problems;   ///< Failures in words; any of them means exit status 1.
  std::vector<std::size_t> positions;  ///< Of this shard's runs in the set.
  int missing = 0;                     ///< Runs that were to be done (in a dry run: that are).
  /// Of the missing runs on these workers, from timings.csv of earlier calls; negative: unknown.
  double estimate_seconds = -1;
};

/// Runs what is missing below `results_root`/`name`. Every run's folder appears whole or not at all
/// (atomic rename); runs.csv and timings.csv grow as runs finish and end in the order of the set,
/// runs of other shards included. A worker that dies leaves a failed row and failed/<hash>/log.txt;
/// failed runs are tried again by the next call. A full disk ends the sweep and keeps what is done.
/// SIGINT and SIGTERM end the sweep and keep what is done. No FlowEngine may exist in this process.
SweepOutcome sweep_runs(const RunSet& runs, const std::string& name, const RunnerOptions& options,
                        const std::function<void(const Progress&)>& on_progress);

}  // namespace orrery::experiments
