/// What it takes on the runtime (models/spec/runtime.h) until a plan trains, its state apart: the
/// one place where processes, communicators and searches have a price. Every policy asks it.
#pragma once
#include <span>
#include <string>

#include "models/interfaces/recovery_policy.h"
#include "models/ir/plan.h"
#include "planners/recovery/kit/phases.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// What becomes of the processes of devices that stay.
enum class Processes {
  restart,  ///< All start again.
  stay,     ///< They go on, and only ranks whose peers have changed get new communicators.
};

/// How a policy brings a plan up.
struct BringUp {
  Processes processes = Processes::restart;
  /// Nodes outside of the plan are kept ready: the container is there, processes wait.
  bool warm_spares = false;
  /// New nodes have been started beside training (node_start()).
  bool prepared = false;
};

/// Devices that compute in `to` and that need communicators which they did not have in `from`:
/// whose tensor-parallel group, holders of the same blocks, or neighbors in a pipeline are others.
/// All, where `from` is null.
int ranks_to_connect(const models::Cluster& cluster, const ir::Plan* from, const ir::Plan& to);

/// Until processes run on the nodes of `to` on which none ran for `from`; 0: there are none. `from`
/// may be null.
Seconds node_start(const PolicyInput& input, const ir::Plan* from, const ir::Plan& to);

/// Processes start side by side, then communicators are built:
/// max(node_start, process start) + ranks x connect_rank. `from` is what ran, or what a recovery
/// was bringing up; may be null.
Stall bring_up(const PolicyInput& input, const ir::Plan* from, const ir::Plan& to,
               const BringUp& how);

/// What searches of these planners take (models::Runtime::search).
Stall search_time(const PolicyInput& input, std::span<const std::string> planners);

/// `own` if it has a figure, else what `priced` says: for stalls that follow the runtime.
template <class Priced>
Stall pay(const Stall& own, const Priced& priced) {
  return own.of == Stall::Of::runtime ? priced() : own;
}

}  // namespace orrery::planners
