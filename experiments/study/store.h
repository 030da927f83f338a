/// The results folder of one study: which runs are in it, runs.csv, timings.csv, the index.
#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "experiments/study/claims.h"
#include "experiments/study/task.h"

namespace orrery::experiments {

/// Wall-clock seconds of a run.
struct Timing {
  double planning = 0;
  double evaluation = 0;
  double total = 0;
};

class Store {
 public:
  /// Keeps references. `list` has all runs of the study, whatever the shard; below, a run is its
  /// position in it.
  Store(const TaskList& list, std::string folder, Claims& claims);

  const std::string& folder() const { return folder_; }
  std::string runs_csv() const { return folder_ + "/runs.csv"; }
  std::string figures() const { return folder_ + "/figures"; }
  std::string run_folder(std::size_t run) const;
  std::string failed_folder(std::size_t run) const;
  /// Where a worker of this call writes.
  std::string work_folder(std::size_t run) const;
  /// Where workers and claims are.
  static std::string work_folders(const std::string& folder) { return folder + "/.work"; }
  static std::string index_file(const std::string& folder) { return folder + "/index.sqlite"; }
  /// Whether a study's results are there, or are on their way.
  static bool is_results_folder(const std::string& folder);

  /// A finished run lies there, with all that was asked for.
  bool present(std::size_t run) const;
  /// A run failed, and was not tried again yet.
  bool failed(std::size_t run) const;
  /// Why, from its summary.
  std::string failure(std::size_t run) const;
  /// Names of the folders of runs that have ended: a look at all of them at once.
  std::set<std::string> ended() const;
  /// Makes the folders.
  void open() const;
  /// Removes what calls that are gone have left, and failures of runs that will be tried again.
  void tidy(const std::vector<std::size_t>& again) const;
  /// Makes a filled work folder the run's folder; a run that another process finished meanwhile
  /// stays, unless it lacks what was asked for.
  void publish(std::size_t run) const;
  /// Keeps the log of a run that failed and removes the rest of its work folder.
  void fail(std::size_t run, const std::string& reason) const;
  void discard(std::size_t run) const;

  /// Adds the row of a run that has just ended.
  void append(std::size_t run, const std::optional<Timing>& timing) const;
  /// Keeps the time of a run of a call that joins another, whose rewrite_timings() takes it over:
  /// hosts must not append to one file.
  void hand_over(std::size_t run, const Timing& timing) const;
  /// Writes runs.csv in the order of the study, with all runs that ended.
  void rewrite_runs() const;
  void rewrite_timings() const;
  void rewrite_index() const;
  /// Writes the list's table with the rows of all runs that are there, in their order. Returns its
  /// path.
  std::string gather_table() const;
  /// Copies the files that the list publishes; one that two runs wrote is taken from the later.
  /// Returns those that none wrote.
  std::vector<std::string> publish_files() const;
  /// All runs of the study, all shards, have a result or failed.
  bool complete() const;

  std::map<std::string, Timing> timings() const;

 private:
  /// Text of summary.json of a run that ended; nullopt otherwise.
  std::optional<std::string> summary(std::size_t run) const;
  /// The columns, and the rows of all runs that ended.
  std::vector<std::vector<std::string>> table() const;

  const std::string& hash(std::size_t run) const { return list_.tasks[run].hash; }

  const TaskList& list_;
  std::string folder_;
  Claims& claims_;
};

/// Writes an SQLite file with the table `runs`: the columns of runs.csv, numbers as numbers.
/// Atomic.
void write_index(const std::string& path, const std::vector<std::string>& columns,
                 const std::vector<std::vector<std::string>>& rows);

}  // namespace orrery::experiments
