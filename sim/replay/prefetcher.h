/// The trace says what happens next, and many policies what they will answer: the iteration of that
/// plan is simulated while the one before it is still waited for. Changes when simulations run,
/// never what they answer. Private to sim/replay.
#pragma once
#include "sim/replay/device_states.h"
#include "sim/replay/event_batch.h"
#include "sim/replay/replay.h"
#include "sim/replay/replica_store.h"

namespace orrery::sim {

class Prefetcher {
 public:
  /// Keeps references.
  Prefetcher(const ReplayInput& input, Instant horizon) : input_(input), horizon_(horizon) {}

  /// The plan's iteration on the devices as they are.
  void prefetch(const ir::Plan& plan, const DeviceStates& devices) const;
  /// Goes through the coming events and prefetches the first plan that the policy would then switch
  /// to. `state` says the iteration, its time, the first plan and the pending switch; iteration and
  /// checkpoints stay as they are now. `plan`: the one that trains, or that a recovery brings up;
  /// may be null.
  void look_ahead(models::JobState state, const models::PlanPointer& plan, DeviceStates devices,
                  ReplicaStore replicas, Events coming) const;

 private:
  const ReplayInput& input_;
  Instant horizon_;
};

}  // namespace orrery::sim
