/// Sweeps: runs of a list in forked workers, results as they finish, resumable.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/cache_setting.h"
#include "experiments/study/call.h"
#include "experiments/study/slurm.h"

namespace orrery::experiments {

struct TaskList;

struct RunnerOptions {
  std::string results_root = "results";
  int workers = 0;      ///< 0: one for each core.
  int shard_index = 1;  ///< `--shard i/n`: runs whose position is i - 1 modulo n.
  int shard_count = 1;
  bool dry_run = false;  ///< Nothing is written: see `positions` and `estimate_seconds`.
  int limit = 0;         ///< Most runs that this call does; 0: all that are missing.
  bool figure = true;
  bool timelines = false;  ///< Write a Perfetto file for each run.
  /// Only do runs that no other call on the folder has taken, until there is none; another call
  /// writes the tables.
  bool join = false;
  /// Do no run here: leave them to a job array whose tasks join.
  std::optional<SlurmJob> slurm;
  /// Where runs look answers up and keep them, and that opened; results do not depend on it.
  CacheSetting cache{"off"};
  std::shared_ptr<const models::AnswerStore> answers;
};

struct SweepOutcome {
  int total = 0;    ///< Runs of this shard.
  int present = 0;  ///< There already, or equal to one before it: one result serves both.
  /// Finished since this call began with a result, infeasible ones included; those by other calls
  /// on the folder count.
  int done = 0;
  int elsewhere = 0;  ///< Of these, by other calls.
  int failed = 0;
  bool interrupted = false;
  std::string results_folder;
  std::string runs_csv;
  std::string table;                   ///< TaskList::table of all runs; "": none, or a dry run.
  std::vector<std::string> figures;    ///< Written by the plot script.
  std::vector<std::string> problems;   ///< Failures in words; any of them means exit status 1.
  std::vector<std::size_t> positions;  ///< Of this shard's runs in the list.
  int missing = 0;                     ///< Runs that were to be done (in a dry run: that are).
  /// How long the missing runs will take, by timings.csv of earlier calls; negative: unknown.
  double estimate_seconds = -1;
  double planning_seconds = 0;  ///< Wall clock of all runs that are there, by timings.csv.
  double evaluation_seconds = 0;
  double total_seconds = 0;
};

/// Runs what is missing below `results_root`/`name`. Every run's folder appears whole or not at all
/// (atomic rename); runs.csv and timings.csv grow as runs finish and end in the order of the list,
/// runs of other shards included. Calls on one folder at the same time share its runs (claims.h): a
/// call waits for runs that another one does, and takes them over if that one ends. A worker that
/// dies leaves a failed row and failed/<hash>/log.txt; failed runs are tried again by the next
/// call. A full disk ends the sweep and keeps what is done. Canceled, it keeps what is done. No
/// FlowEngine may exist in this process.
SweepOutcome sweep_runs(const TaskList& list, const std::string& name, const RunnerOptions& options,
                        const Call& call);

}  // namespace orrery::experiments
