/// Sweeps: all runs of a manifest in forked workers, results as they finish, resumable.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "experiments/runner/manifest.h"
#include "models/spec/library.h"

namespace orrery::experiments {

struct RunnerOptions {
  std::string results_root = "results";
  int workers = 0;      ///< 0: one for each core.
  int shard_index = 1;  ///< `--shard i/n`: runs whose position is i - 1 modulo n.
  int shard_count = 1;
  bool dry_run = false;
  bool figure = true;
  bool timelines = false;  ///< Write a Perfetto file for each run.
  bool quiet = false;
};

/// Called as runs start and finish; for progress bars.
struct Progress {
  int total = 0;
  int done = 0;     ///< Of this call.
  int present = 0;  ///< Found finished from an earlier call.
  int failed = 0;
  double elapsed_seconds = 0;
  double remaining_seconds = -1;  ///< Negative: not known yet.
  std::string message;            ///< What just happened.
};

struct SweepResult {
  int total = 0;
  int present = 0;
  int done = 0;
  int failed = 0;
  bool interrupted = false;
  std::string results_folder;
  std::string runs_csv;
  std::vector<std::string> figures;   ///< Written by the plot script.
  std::vector<std::string> problems;  ///< Failures in words.
};

/// Runs what is missing. Every run's folder appears whole or not at all (atomic rename); runs.csv
/// and timings.csv grow as runs finish and end in the order of the manifest. SIGINT ends the sweep
/// and keeps what is done.
SweepResult run_sweep(const Manifest& manifest, const models::Library& library,
                      const RunnerOptions& options,
                      const std::function<void(const Progress&)>& on_progress);

}  // namespace orrery::experiments
