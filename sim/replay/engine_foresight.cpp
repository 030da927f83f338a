// Looking ahead: the trace says what happens next, and many policies what they will answer. The
// iteration of that plan is simulated while the one before it is waited for. Answers do not change,
// only when they are worked out.
#include "sim/replay/engine.h"

namespace orrery::sim {

static constexpr int kForeseen = 8;  ///< Batches of events without a new plan that are looked past.

/// The plan that will train when the next events come, as far as it can be said now.
models::PlanPointer ReplayEngine::next_plan(Instant at) const {
  if (planned_ && planned_->at < at) return planned_->decision.plan;
  if (recovery_) return recovery_->plan();
  return run_ ? run_->plan() : nullptr;
}

/// How far training will have come and what it will have saved is left as it is now.
void ReplayEngine::prefetch_after(Events coming) const {
  if (options_.measured_planning) return;
  DeviceStates devices = devices_;
  CopyStore copies = copies_;
  models::JobState state;
  state.training = true;
  state.iteration = run_ ? run_->done() : done_;
  state.iteration_time = iteration_time_;
  state.first = first_;
  for (int i = 0; i < kForeseen && !coming.empty(); ++i) {
    const Events batch = coming.first(batch_size(coming));
    coming = coming.subspan(batch.size());
    state.now = batch.front().time;
    const models::PlanPointer plan = next_plan(state.now);
    if (plan == nullptr || state.now >= horizon_) return;
    if (plan != state.plan) copies.set_gpu(state.iteration, plan, PlanDevices(*plan));
    state.plan = plan;
    bool surprise = false;
    state.announced = false;
    for (const ir::ClusterEvent& event : batch) {
      const DeviceStates::Change change = devices.apply(event);
      lose(change, copies);
      state.announced |= !change.died.empty();
      surprise |= change.surprise || change.job_failed;
    }
    state.announced &= !surprise;
    state.live = devices.live();
    state.leaving = devices.leaving();
    state.slow = devices.slow();
    state.replicas = copies.list();
    state.pending.reset();
    if (planned_ && plan != planned_->decision.plan) {
      state.pending = {planned_->decision.plan, planned_->asked, planned_->at};
    }
    const models::PlanPointer next = input_.policy.plan_to_prefetch(state, batch);
    if (next == nullptr) continue;
    prefetch(*next, devices);
    return;
  }
}

void ReplayEngine::prefetch(const ir::Plan& plan, const DeviceStates& devices) const {
  input_.iterations.prefetch(plan, devices.slow(ir::working_devices(plan)),
                             {devices.links().begin(), devices.links().end()});
}

}  // namespace orrery::sim
