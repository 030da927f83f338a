/// A recovery policy in a process of its own, which the launcher asks what to run when devices are
/// lost: planner and simulator stay away from the launcher's threads and sockets. Private to the
/// execute command.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>

#include "executor/launcher/launcher.h"
#include "experiments/runner/execute.h"

namespace orrery::tools {

struct PolicyQuestion {
  std::string policy;  ///< Of planners/recovery/catalog.h; it exists.
  std::uint64_t seed = 0;
  std::int64_t checkpoint_every = 0;
  bool local = false;  ///< Checkpoints go to a folder on each node.
  bool cloud = false;  ///< Checkpoints go to the cloud. It counts as the cluster's object storage.
  std::string out;     ///< Of the run: its plans go to inputs/plan-<generation>.yaml; "": nowhere.
};

/// A note where a checkpoint folder counts as storage whose speed the cluster file does not say;
/// empty: nowhere.
std::string assumed_storage(const models::Cluster& cluster, const PolicyQuestion& question);

/// The policy cannot serve this job on this cluster.
struct PolicyRefuses : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class PlanningProcess {
 public:
  /// Called every second with the seconds that the answer has taken; false: it is waited for no
  /// longer.
  using Waits = std::function<bool(int seconds)>;
  /// Starts the process (before there are threads) with the run's plan as the one that runs. Throws
  /// PolicyRefuses, and std::runtime_error if the process does not answer in ten minutes. Returns
  /// early when `waits` says so.
  PlanningProcess(const experiments::LoadedRun& run, const PolicyQuestion& question,
                  const Waits& waits);
  ~PlanningProcess();
  /// The policy's answer, lowered; or why there is none.
  std::variant<executor::NextProgram, std::string> ask(const executor::LostDevices& lost,
                                                       const Waits& waits);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace orrery::tools
