/// The results folder of one experiment: which runs are in it, runs.csv, timings.csv, the index.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/runner/result.h"

namespace orrery::experiments {

/// A run of the sweep with its place.
struct SweepRun {
  PlannedRun planned;
  RunIdentity identity;
};

/// Wall-clock seconds of a run.
struct Timing {
  double planning = 0;
  double evaluation = 0;
  double total = 0;
};

class Store {
 public:
  /// Keeps a reference to the manifest. `runs` are all of the manifest, whatever the shard.
  Store(const Manifest& manifest, std::string folder, std::vector<SweepRun> runs);

  const std::vector<SweepRun>& runs() const { return runs_; }
  const std::string& folder() const { return folder_; }
  std::string runs_csv() const { return folder_ + "/runs.csv"; }
  std::string figures() const { return folder_ + "/figures"; }
  std::string run_folder(const SweepRun& run) const;
  std::string failed_folder(const SweepRun& run) const;
  /// Where a worker of this process writes.
  std::string work_folder(const SweepRun& run) const;

  /// A finished run lies there (with a timeline, if asked for).
  bool present(const SweepRun& run, bool timeline) const;
  /// Removes what workers of dead processes left, and failures of runs that will be tried again.
  void prepare(const std::vector<const SweepRun*>& missing) const;
  /// Makes a filled work folder the run's folder; a run that another process finished meanwhile
  /// stays, unless it lacks a timeline.
  void publish(const SweepRun& run, bool timeline) const;
  /// Keeps the log of a run that failed and removes the rest of its work folder.
  void fail(const SweepRun& run, const std::string& reason) const;
  void discard(const SweepRun& run) const;

  /// Adds the row of a run that has just ended.
  void append(const SweepRun& run, const std::optional<Timing>& timing) const;
  /// Writes runs.csv in the order of the manifest, with all runs that ended.
  void rewrite_runs() const;
  void rewrite_timings() const;
  void rewrite_index() const;
  /// All runs of the manifest, all shards, have a result or failed.
  bool complete() const;

  std::map<std::string, Timing> timings() const;

 private:
  /// Text of summary.json of a run that ended; nullopt otherwise.
  std::optional<std::string> summary(const SweepRun& run) const;
  std::vector<std::vector<std::string>> rows() const;

  const Manifest& manifest_;
  std::string folder_;
  std::vector<SweepRun> runs_;
  std::vector<std::string> columns_;
};

}  // namespace orrery::experiments
