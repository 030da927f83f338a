/// A recovery policy in a process of its own, which the launcher asks what to run when devices are
/// lost: planner and simulator stay away from the launcher's threads and sockets. Private to the
/// execute command.
#pragma once
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>

#include "executor/launcher/launcher.h"
#include "experiments/study/execute.h"
#include "tools/commands/execute_policy.h"

namespace orrery::tools {

/// The policy cannot serve this job on this cluster, or has no plan for a loss that will come.
struct PolicyRefuses : std::runtime_error {
  PolicyRefuses(const std::string& why, bool loss) : std::runtime_error(why), of_loss(loss) {}
  bool of_loss;  ///< The words name the loss.
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
