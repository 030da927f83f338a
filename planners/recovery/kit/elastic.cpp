#include "planners/recovery/kit/elastic.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "planners/recovery/kit/replan.h"

namespace orrery::planners {
namespace {

/// Replicas in GPU memory; failing them the checkpoint.
const std::vector<StateSource>& replicas_then_cloud() {
  static const std::vector<StateSource> order = {StateSource::own_gpu, StateSource::peer_gpu,
                                                 StateSource::cloud};
  return order;
}

}  // namespace

ElasticPolicy::ElasticPolicy(const PolicyInput& input, ElasticStalls stalls,
                             std::string checkpoint_interval)
    : input_(input),
      stalls_(std::move(stalls)),
      checkpoint_interval_(std::move(checkpoint_interval)) {}

std::variant<models::PlanPointer, models::Infeasible> ElasticPolicy::first_plan(
    const std::vector<DeviceId>& live) const {
  return anew(live);
}

std::variant<models::PlanPointer, models::Infeasible> ElasticPolicy::anew(
    const std::vector<DeviceId>& live) const {
  if (input_.plan) {
    auto home = with_spares(*input_.plan, input_.cluster, live);
    if (home) return std::make_shared<const ir::Plan>(std::move(*home));
  }
  return fresh(live);
}

std::vector<models::CheckpointLevel> ElasticPolicy::checkpoints(const ir::Plan& plan,
                                                                Seconds iteration_time) const {
  return cloud_checkpoint(input_, checkpoint_interval_, plan, stalls_.phases.restart.duration,
                          iteration_time);
}

Stall ElasticPolicy::stall_of(const models::JobState&, const ir::Plan&, bool planned) const {
  return planned ? stalls_.gain : stalls_.phases.reinitialize;
}

models::RecoveryDecision ElasticPolicy::go_on(const models::JobState& state, ElasticChange change,
                                              const Happening& what, bool planned) const {
  Resumption resumption;
  resumption.order = replicas_then_cloud();
  resumption.planned = planned;
  resumption.detect = detection(what, state, stalls_.phases);
  if (change.plan != state.plan) resumption.decide = stalls_.phases.decide;
  resumption.reinitialize = stall_of(state, *change.plan, planned);
  resumption.plan = std::move(change.plan);
  resumption.reason = std::move(change.reason);
  const models::JobState seen = known(state);
  models::RecoveryDecision decision = resume(input_, seen, resumption);
  if (decision.resume_iteration < state.iteration) {
    resumption.reinitialize = stalls_.phases.restart;
    resumption.reason += "; no replica is left of some layers: restart from the checkpoint";
    decision = resume(input_, seen, resumption);
  }
  return decision;
}

models::RecoveryDecision ElasticPolicy::after_loss(const models::JobState& state,
                                                   const Happening& what) const {
  // What is about to leave is used only if there is no other way.
  const std::vector<DeviceId> stay = staying(state);
  models::Infeasible why;
  for (const std::vector<DeviceId>* live : {&stay, &state.live}) {
    if (live != &stay && stay == state.live) break;
    if (state.plan != nullptr && works_on(*state.plan, *live)) {
      return go_on(state, {state.plan, "the same plan again"}, what, false);
    }
    std::string reason = "planned for what lives";
    if (state.plan != nullptr) {
      auto change = shrink(state, *live);
      if (auto* found = std::get_if<ElasticChange>(&change)) {
        return go_on(state, std::move(*found), what, false);
      }
      const auto& none = std::get<models::Infeasible>(change);
      reason = fmt::format("planned anew: {}: {}", none.constraint, none.witness);
    }
    auto plan = anew(*live);
    if (auto* found = std::get_if<models::PlanPointer>(&plan)) {
      return go_on(state, {std::move(*found), std::move(reason)}, what, false);
    }
    why = std::get<models::Infeasible>(std::move(plan));
  }
  return wait(why.constraint + ": " + why.witness);
}

models::RecoveryDecision ElasticPolicy::on_events(const models::JobState& state,
                                                  std::span<const ir::ClusterEvent> events) const {
  const Happening what = happening(events);
  // Devices that come, notices and slow devices do not begin a recovery anew.
  if (!what.failure && was_recovering(state, events, input_.cluster)) {
    return proceed("the recovery goes on");
  }
  if (!state.training || state.plan == nullptr || what.job || !works_on(*state.plan, state.live)) {
    return after_loss(state, what);
  }
  const std::vector<DeviceId> stay = staying(state);
  if (heeds_notices() && !works_on(*state.plan, stay)) {
    auto change = shrink(state, stay);
    if (auto* found = std::get_if<ElasticChange>(&change)) {
      return go_on(state, std::move(*found), what, true);
    }
    return proceed("no plan without the devices that will leave: on as long as they live");
  }
  if (what.capacity) {
    if (keeps_pending(state, stalls_.phases.decide.duration)) {
      return proceed("a switch is on its way");
    }
    if (std::optional<ElasticChange> change = grow(state, stay)) {
      return go_on(state, std::move(*change), what, true);
    }
    return proceed("new devices are not used yet");
  }
  return proceed("the running plan's devices all live");
}

}  // namespace orrery::planners
