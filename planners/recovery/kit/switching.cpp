#include "planners/recovery/kit/switching.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/base/check.h"
#include "planners/recovery/kit/checkpointing.h"
#include "planners/recovery/kit/replica_planner.h"
#include "planners/recovery/kit/transfer_estimate.h"

namespace orrery::planners {

void describe_switching(config::Visitor& v, SwitchingSettings& settings) {
  describe_phases(v, settings.phases);
  describe_planner(v, settings.planner, settings.planner_options,
                   "Planner of the catalog that makes plans for what is left; the paper's unless "
                   "another one is named.");
  v.optional("horizon", settings.horizon.value,
             "Seconds until the next interruption: new devices are used if faster steps until then "
             "make up for the switch; 0: the mean time between the interruptions that the user "
             "expects. [the rule is ours]");
  v.between("horizon", settings.horizon.value, 0.0, 1e9);
  v.optional(
      "slowest", settings.slowest,
      "Devices slower than this share of their speed are left out of plans; 0: none. [ours]");
  v.between("slowest", settings.slowest, 0.0, 1.0);
}

SwitchingPolicy::SwitchingPolicy(const PolicyInput& input, SwitchingSettings settings,
                                 const std::vector<Asked>& planners)
    : input_(input), settings_(std::move(settings)) {
  ORRERY_CHECK(!planners.empty(), "a policy that replans needs a planner");
  settings_.phases = settled(std::move(settings_.phases), input_.runtime);
  const auto add = [this](auto source) {
    sources_.push_back([asked = std::move(source)](const std::vector<DeviceId>& devices) {
      return asked.plan_for(devices);
    });
  };
  for (const auto& [name, options, whole_replicas] : planners) {
    if (whole_replicas) {
      add(ReplicaPlanner(input_, name, std::nullopt, options));
    } else {
      add(Replanner(input_, name, options));
    }
    if (std::find(names_.begin(), names_.end(), name) == names_.end()) names_.push_back(name);
  }
}

Stall SwitchingPolicy::decide(bool searched) const {
  return pay(settings_.phases.decide, [&] {
    return search_time(
        input_, searched ? std::span<const std::string>(names_) : std::span<const std::string>());
  });
}

Stall SwitchingPolicy::reinitialize(const models::JobState& state, const ir::Plan& next,
                                    bool prepared) const {
  return pay(settings_.phases.reinitialize, [&] {
    const Way own = way();
    Stall stall =
        bring_up(input_, state.plan.get(), next,
                 {.processes = own.processes, .warm_spares = false, .prepared = prepared});
    if (own.mechanism.duration.value <= 0) return stall;
    stall.duration += own.mechanism.duration;
    stall.source += "; " + own.mechanism.source;
    return stall;
  });
}

std::optional<models::RecoveryDecision> SwitchingPolicy::planned_change(
    const models::JobState& state, const models::PlanPointer& plan, bool searched) const {
  std::optional<models::RecoveryDecision> decision = switch_to(state, plan);
  if (!decision) return decision;
  Seconds preparation = decide(searched).duration;
  if (settings_.phases.reinitialize.of == Stall::Of::runtime) {
    preparation += node_start(input_, state.plan.get(), *plan);
  }
  decision->run_on = to_nanoseconds(preparation);
  return decision;
}

FoundPlan SwitchingPolicy::plan_for(const std::vector<DeviceId>& devices) const {
  if (devices.empty()) return models::Infeasible{"live devices", "none is left"};
  auto first = sources_.front()(devices);
  for (std::size_t i = 1; i < sources_.size(); ++i) {
    if (std::holds_alternative<models::PlanPointer>(first)) break;
    auto next = sources_[i](devices);
    if (std::holds_alternative<models::PlanPointer>(next)) return next;
  }
  return first;
}

FoundPlan SwitchingPolicy::first_plan(const std::vector<DeviceId>& live) const {
  return planned_for(live).plan;
}

SwitchingPolicy::Planned SwitchingPolicy::planned_for(const std::vector<DeviceId>& live) const {
  if (auto home = home_plan(input_, live)) return {std::move(home), false};
  return {plan_for(live), true};
}

/// What a job knows: the time of its steps, and what its planner predicts. Without predictions of
/// both plans the evaluator is asked.
Seconds SwitchingPolicy::predicted_time(const models::JobState& state, const ir::Plan& plan) const {
  const auto& before = state.plan->predicted;
  if (!before || !plan.predicted || !(before->iteration_time.value > 0)) {
    return input_.evaluator.evaluate(plan).iteration_time;
  }
  return state.iteration_time * (plan.predicted->iteration_time / before->iteration_time);
}

models::RecoveryDecision SwitchingPolicy::on_join(const models::JobState& state,
                                                  const std::vector<DeviceId>& good) const {
  if (keeps_pending(state, settings_.phases.decide.duration)) {
    return proceed("a switch is on its way");
  }
  const Planned found = planned_for(good);
  const auto* plan = std::get_if<models::PlanPointer>(&found.plan);
  if (plan == nullptr) return proceed("no plan for all devices: the running one stays");
  if (ir::devices_of(**plan) == ir::devices_of(*state.plan)) {
    return proceed("the planner leaves the new devices idle");
  }
  std::optional<models::RecoveryDecision> decision = planned_change(state, *plan, found.searched);
  if (!decision) return proceed("the state for a new plan is not complete: the running one stays");
  const Seconds stall = stall_estimate(input_, *decision);
  const Seconds horizon =
      settings_.horizon.value > 0 ? settings_.horizon : Seconds{1 / expected_interruptions(input_)};
  const Seconds after = predicted_time(state, **plan);
  if (!growth_is_profitable(state.iteration_time, after, stall, horizon)) {
    return proceed(fmt::format("{:.2f} s instead of {:.2f} s a step do not pay for {:.1f} s",
                               after.value, state.iteration_time.value, stall.value));
  }
  decision->reason = "more devices: " + decision->reason;
  return *decision;
}

/// Devices of the plan will leave, or are slow.
models::RecoveryDecision SwitchingPolicy::leave(const models::JobState& state,
                                                const std::vector<DeviceId>& good) const {
  const std::optional<Instant> deadline = deadline_of(state);
  const Seconds least =
      settings_.phases.decide.duration + reinitialize(state, *state.plan, true).duration;
  if (deadline && to_nanoseconds(least) > *deadline - state.now) {
    return proceed(
        fmt::format("a planned change takes more than {:.0f} s, the notice leaves {:.0f}",
                    least.value, to_seconds(*deadline - state.now).value));
  }
  const Planned found = planned_for(good);
  const auto* plan = std::get_if<models::PlanPointer>(&found.plan);
  if (plan == nullptr) return proceed("no plan without the devices that leave or are slow");
  std::optional<models::RecoveryDecision> decision = planned_change(state, *plan, found.searched);
  if (!decision) return proceed("the state for a new plan is not complete: the running one stays");
  if (!deadline) {
    const Seconds after = input_.evaluator.evaluate(**plan).iteration_time;
    if (after >= state.iteration_time) return proceed("no plan without the slow devices is faster");
    decision->reason = "without the slow devices: " + decision->reason;
    return *decision;
  }
  decision->reason = "before the devices leave: " + decision->reason;
  return before_deadline(input_, state, *deadline, std::move(*decision));
}

models::RecoveryDecision SwitchingPolicy::on_events(
    const models::JobState& state, std::span<const ir::ClusterEvent> events) const {
  const std::vector<DeviceId> good = usable(state, settings_.slowest);
  const EventSummary what = summarize(events);
  if (state.training && runs_on(*state.plan, state.live) && !what.job) {
    if (!runs_on(*state.plan, good)) return leave(state, good);
    return what.capacity ? on_join(state, good) : proceed("the running plan's devices all live");
  }
  // Devices that come, notices and slow devices do not restart a recovery.
  if (!what.failure && was_recovering(state, events, input_.cluster)) {
    return proceed("the recovery goes on");
  }
  std::vector<models::RecoveryPhase> phases;
  const Stall detected = detection(what, state, settings_.phases);
  if (detected.duration.value > 0) {
    phases.push_back({PhaseKind::detect, to_nanoseconds(detected.duration), detected.source});
  }
  models::PlanPointer plan = state.plan;
  if (plan == nullptr || what.capacity || !runs_on(*plan, good)) {
    Planned found = planned_for(good);
    // What is slow or about to leave is used only if there is no other way.
    if (std::holds_alternative<models::Infeasible>(found.plan) && good != state.live) {
      found = planned_for(state.live);
    }
    if (const auto* none = std::get_if<models::Infeasible>(&found.plan)) {
      return wait(fmt::format("no plan for {} devices: {}: {}", state.live.size(), none->constraint,
                              none->witness));
    }
    plan = std::get<models::PlanPointer>(found.plan);
    const Stall planning = decide(found.searched);
    phases.push_back({PhaseKind::decide, to_nanoseconds(planning.duration), planning.source});
  }
  return recover(state, std::move(plan), std::move(phases));
}

}  // namespace orrery::planners
