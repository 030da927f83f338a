/// A recovery policy in a process of its own, which the launcher asks what to run when devices are
/// lost: planner and simulator stay away from the launcher's threads and sockets. Private to the
/// execute command.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "executor/launcher/launcher.h"
#include "experiments/runner/execute.h"

namespace orrery::tools {

struct PolicyQuestion {
  std::string policy;  ///< Of planners/recovery/catalog.h; it exists.
  std::uint64_t seed = 0;
  std::int64_t checkpoint_every = 0;
  bool cloud = false;  ///< Checkpoints go to the cloud, too.
};

class PlanningProcess {
 public:
  /// Starts the process (before there are threads) with the run's plan as the one that runs. Throws
  /// std::runtime_error with the reason if the policy cannot serve this job on this cluster.
  PlanningProcess(const experiments::LoadedRun& run, const PolicyQuestion& question);
  ~PlanningProcess();
  /// The policy's answer, lowered; or why there is none.
  std::variant<executor::NextProgram, std::string> ask(const executor::LostDevices& lost);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace orrery::tools
