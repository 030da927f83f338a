/// A recovery policy that answers for a run of the executor: the plan to go on with, lowered. It
/// judges plans with the simulator, and lives in the planning process (execute_recovery.h). Private
/// to the execute command.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/launcher/launcher.h"
#include "experiments/study/execute.h"
#include "models/interfaces/recovery_policy.h"
#include "models/ir/program.h"

namespace orrery::tools {

/// A failure that is asked for.
struct WantedLoss {
  DeviceId device;
  std::int64_t step = 0;  ///< In which it comes.
};

/// The faults of a run, by step.
std::vector<WantedLoss> wanted_losses(const executor::LaunchOptions& options);

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
  /// Losses that will come; asked beforehand, in this order, those of one step together.
  std::vector<WantedLoss> losses;
  std::vector<DeviceId> devices;     ///< The run's, ascending: those that live before the losses.
  std::vector<PlanSwitch> switches;  ///< Planned, ascending.
};

/// A note where a checkpoint folder counts as storage whose speed the cluster file does not say;
/// empty: nowhere.
std::string assumed_storage(const models::Cluster& cluster, const PolicyQuestion& question);

class PolicyServer {
 public:
  /// The run's plan is the one that runs, until a planned switch. Keeps both references. Throws
  /// std::runtime_error if the policy cannot serve this job on this cluster.
  PolicyServer(const experiments::LoadedRun& run, const PolicyQuestion& question);
  ~PolicyServer();

  struct Answer {
    std::string problem;  ///< Why there is no program; empty: there is one.
    std::string what;     ///< The policy's words, one line.
    ir::Program program;
  };
  /// Writes the plan to the run's folder, if it has one.
  Answer answer(const executor::LostDevices& lost);

  /// What keeps the run from going on after the losses that the question names; empty: nothing.
  /// Later answers do not know of it.
  std::string find_unanswered_loss();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::tools
