#include "sim/replay/prefetcher.h"

#include <utility>

namespace orrery::sim {
namespace {

/// Batches of events that may pass without a new plan before the look-ahead gives up.
constexpr int kBatchesAhead = 8;

}  // namespace

void Prefetcher::prefetch(const ir::Plan& plan, const DeviceStates& devices) const {
  input_.iterations.prefetch(plan, devices.conditions(ir::working_devices(plan)));
}

void Prefetcher::look_ahead(models::JobState state, const models::PlanPointer& plan,
                            DeviceStates devices, ReplicaStore replicas, Events coming) const {
  const std::optional<models::PendingSwitch> pending = std::exchange(state.pending, {});
  state.training = true;
  for (int i = 0; i < kBatchesAhead && !coming.empty(); ++i) {
    const Events batch = first_batch(coming, input_.cluster);
    coming = coming.subspan(batch.size());
    state.now = batch.front().time;
    const bool switched = pending && pending->at < state.now;
    const models::PlanPointer& runs = switched ? pending->plan : plan;
    if (runs == nullptr || state.now >= horizon_) return;
    if (runs != state.plan) replicas.set_gpu(state.iteration, runs, PlanDevices(*runs));
    state.plan = runs;
    const DeviceStates::Change change = devices.apply(batch);
    replicas.lose(change);
    state.announced = change.announced();
    devices.describe_in(state);
    state.replicas = replicas.list();
    state.pending = pending && runs != pending->plan ? pending : std::nullopt;
    const models::PlanPointer next = input_.policy.plan_to_prefetch(state, batch);
    if (next != nullptr) return prefetch(*next, devices);
  }
}

}  // namespace orrery::sim
