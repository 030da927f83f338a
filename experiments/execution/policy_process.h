/// A recovery policy that answers for a run of the executor: the plan to go on with, lowered. It
/// judges plans with the simulator, and lives in a process of its own, so that planner and
/// simulator stay away from the launcher's threads and sockets.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "executor/launcher/launcher.h"
#include "experiments/study/execute.h"
#include "models/interfaces/recovery_policy.h"

namespace orrery::experiments {

/// A failure that is asked for.
struct WantedLoss {
  DeviceId device;
  std::int64_t step = 0;  ///< In which it comes.
};

/// A change of plan after `step` that the policy has not asked for.
struct PlanSwitch {
  std::int64_t step = 0;
  models::PlanPointer plan;
};

struct PolicyQuestion {
  std::string policy;  ///< Of planners/recovery/catalog.h; it exists.
  std::uint64_t seed = 0;
  std::int64_t checkpoint_every = 0;
  bool local = false;  ///< Checkpoints go to a folder on each node.
  bool cloud = false;  ///< Checkpoints go to the cloud. It counts as the cluster's object storage.
  std::string out;     ///< Of the run: its plans go to inputs/plan-<generation>.yaml; "": nowhere.
  /// Losses that will come, by step; asked beforehand, those of one step together.
  std::vector<WantedLoss> losses;
  std::vector<DeviceId> devices;     ///< The run's, ascending: those that live before the losses.
  std::vector<PlanSwitch> switches;  ///< Planned, ascending.
};

/// A note where a checkpoint folder counts as storage whose speed the cluster file does not say;
/// empty: nowhere.
std::string assumed_storage(const models::Cluster& cluster, const PolicyQuestion& question);

/// The policy cannot serve this job on this cluster, or has no plan for a loss that will come.
struct PolicyRefuses : std::runtime_error {
  PolicyRefuses(const std::string& why, bool loss) : std::runtime_error(why), of_loss(loss) {}
  bool of_loss;  ///< The words name the loss.
};

class PolicyProcess {
 public:
  /// Called every second with the seconds that the answer has taken; false: it is waited for no
  /// longer.
  using Waits = std::function<bool(int seconds)>;
  /// Starts the process (before there are threads) with the run's plan as the one that runs, until
  /// a planned switch. Throws PolicyRefuses, and std::runtime_error if the process does not answer
  /// in ten minutes. Returns early when `waits` says so.
  PolicyProcess(const LoadedRun& run, const PolicyQuestion& question, const Waits& waits);
  ~PolicyProcess();
  /// The policy's answer, lowered; or why there is none. Its plan lies in the run's folder then, if
  /// it has one.
  std::variant<executor::NextProgram, std::string> ask(const executor::LostDevices& lost,
                                                       const Waits& waits);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace orrery::experiments
