/// A job array of Slurm that works through the runs of a study: submitted, followed, canceled, with
/// sbatch, squeue and scancel.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/config/visitor.h"

namespace orrery::experiments {

/// What a user says of the array.
struct SlurmSettings {
  bool slurm = false;
  std::optional<int> nodes;
  std::optional<std::string> time;
  std::optional<std::string> partition;
  std::vector<std::string> sbatch;
};
void describe(config::Visitor& v, SlurmSettings& settings);

/// What the array runs.
struct SlurmJob {
  SlurmSettings settings;
  std::string name;  ///< Of the job.
  int workers = 0;   ///< Of a task; 0: a task has its node for itself.
  std::vector<std::string> command;
};

/// What squeue said of an array.
struct SlurmView {
  struct Task {
    std::string index;
    std::string state;  ///< squeue's long word: RUNNING, TIMEOUT.
    std::string reason;
    std::string node;
    std::string limit;
  };
  std::vector<Task> tasks;
  int running = 0;
  int waiting = 0;
  std::string reason;  ///< Why the first of those that wait does.
  bool ended() const { return running + waiting == 0; }
};

class SlurmArray {
 public:
  /// The array that a call before this one left in the queue and noted in `folder`.
  static std::optional<SlurmArray> noted(const std::string& folder);
  /// Submits `tasks` tasks, whose output goes to `folder`, which is made. Throws std::runtime_error
  /// with what sbatch says.
  static SlurmArray submit(const std::string& folder, const SlurmJob& job, int tasks);

  const std::string& id() const { return id_; }
  /// What group() is in the tasks.
  std::string group() const;
  /// nullopt: squeue does not answer; `problem` says what it said. Of a job that Slurm has
  /// forgotten there are no tasks.
  std::optional<SlurmView> look(std::string& problem) const;
  /// All tasks, or those that have not begun.
  void cancel(bool waiting_only = false) const;
  /// Tasks that ended otherwise than by having nothing left to do, in words.
  std::vector<std::string> failures(const SlurmView& last) const;
  /// Removes what the array has left in the folder.
  void forget() const;

 private:
  SlurmArray(std::string folder, std::string id) : folder_(std::move(folder)), id_(std::move(id)) {}

  std::string folder_;
  std::string id_;
};

/// Name of the array that this process is a task of; "": of none.
std::string slurm_group();

}  // namespace orrery::experiments
