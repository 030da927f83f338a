/// What the programs that study single recoveries share (autohet/recovery, hetu/elastic): a folder
/// with files as input, a cluster with everything that recovery asks, the state of a job that has
/// just lost devices, and what moving state takes.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/interfaces/recovery_policy.h"
#include "models/ir/profile.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/topology.h"
#include "models/spec/workload.h"
#include "planners/recovery/recovery.h"
#include "sim/replay/simulated_timers.h"

namespace orrery::experiments {

/// main() of `PROGRAM FOLDER`: calls `run` with the folder. What it throws goes to standard error;
/// then, and without exactly one argument, the status is 2.
int run_on_folder(int count, char** values, const std::function<void(const std::string&)>& run);

/// The file of that name in the folder, or the name itself (of the library) where there is none.
std::string in_folder(const std::string& folder, const std::string& name);

/// The text that `work` returns in a forked copy of this process, which may build one simulator.
/// Throws std::runtime_error if that fails.
std::string forked_text(const std::function<std::string()>& work);

/// One model on one cluster. One per process.
class RecoveryCase {
 public:
  /// Keeps references.
  RecoveryCase(const models::Cluster& cluster, const models::Workload& workload,
               const models::Job& job);

  const planners::PolicyInput& input() const { return input_; }
  const models::Evaluator& evaluator() const { return timers_.evaluator(); }

  std::vector<DeviceId> all_devices() const;

  /// Iteration 1 was `plan`'s last one, `live` (ascending) is left. Its state is on the GPUs that
  /// live and in the cloud and, with `nvme`, on the NVMe of nodes with a live device.
  models::JobState state_after(const models::PlanPointer& plan, const std::vector<DeviceId>& live,
                               bool nvme) const;

  struct Move {
    Seconds time;   ///< Simulated.
    Seconds bound;  ///< The busiest resource's bytes over its bandwidth (transfer_estimate()).
    Bytes bytes;
  };
  Move move(const std::vector<models::StateTransfer>& transfers) const;

 private:
  const models::Cluster& cluster_;
  models::Topology topology_;
  ir::Profile profile_;
  sim::SimulatedTimers timers_;
  planners::PolicyInput input_;
};

}  // namespace orrery::experiments
