#include "planners/recovery/kit/elastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/base/check.h"

namespace orrery::planners {

void describe_checkpoint_interval(config::Visitor& v, OptionalInterval& interval) {
  v.optional(
      "checkpoint_interval", interval,
      "Between checkpoints to the cloud: auto and own (Young's), young, daly, availability, tuned, "
      "seconds, or never.");
}

std::vector<std::pair<Spares, const char*>> enum_names(Spares) {
  return {{Spares::leave, "leave"}, {Spares::take, "take"}};
}

void describe_spares(config::Visitor& v, Spares& spares) {
  v.optional(
      "spares", spares,
      "leave: spare devices are used when devices come, or when there is no other way; take: "
      "they are started beside training as soon as it goes on after a loss, and take the "
      "place of what was lost.");
}

std::optional<models::Infeasible> zero_off_problem(const models::Job& job, const char* what) {
  const auto& zero = job.allowed.zero_stages;
  if (std::count(zero.begin(), zero.end(), 0) > 0) return std::nullopt;
  return models::Infeasible{
      "ZeRO", fmt::format("the job does not allow stage 0, but {} must be whole", what)};
}

std::optional<models::Infeasible> zero_off_problem(const ir::Plan& plan, const char* what) {
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        if (segment.zero.stage == 0) continue;
        return models::Infeasible{"ZeRO", fmt::format("the plan has ZeRO-{}, but {} must be whole",
                                                      segment.zero.stage, what)};
      }
    }
  }
  return std::nullopt;
}

ElasticPolicy::ElasticPolicy(const PolicyInput& input, Phases phases,
                             OptionalInterval checkpoint_interval)
    : input_(input),
      phases_(settled(std::move(phases), input.runtime)),
      checkpoint_interval_(
          chosen(checkpoint_interval, {CheckpointInterval::Rule::young, {}}, phases_.constants)) {
  ORRERY_CHECK(phases_.restart.has_value(), "a policy with checkpoints needs a restart");
}

/// All processes start again.
Stall ElasticPolicy::restart_stall(const ir::Plan* from, const ir::Plan& to) const {
  return pay(*phases_.restart, [&] { return bring_up(input_, from, to, {}); });
}

FoundPlan ElasticPolicy::first_plan(const std::vector<DeviceId>& live) const {
  if (auto home = home_plan(input_, live)) return home;
  return fresh(live);
}

std::vector<models::CheckpointLevel> ElasticPolicy::checkpoints(const ir::Plan& plan,
                                                                Seconds iteration_time) const {
  return cloud_checkpoint(input_, checkpoint_interval_, plan, restart_stall(&plan, plan).duration,
                          iteration_time);
}

models::RecoveryDecision ElasticPolicy::resume_with(const models::JobState& state,
                                                    ElasticChange change, const EventSummary& what,
                                                    bool planned) const {
  Resumption resumption;
  resumption.order = {StateSource::own_gpu, StateSource::peer_gpu, StateSource::cloud};
  resumption.planned = planned;
  resumption.detect = detection(what, state, phases_);
  if (change.plan != state.plan) {
    resumption.decide = pay(phases_.decide, [&] {
      const std::string asked[] = {planner()};
      return search_time(input_, std::span(asked, change.searched ? 1 : 0));
    });
  }
  const models::PlanPointer to = change.plan;
  const Stall own = stall_of(state, *to, planned);
  resumption.reinitialize = pay(own, [&] {
    Stall stall =
        bring_up(input_, state.plan.get(), *to,
                 {.processes = Processes::stay, .warm_spares = false, .prepared = planned});
    stall.duration += own.duration;  // The policy's own mechanism.
    return stall;
  });
  if (planned && own.of == Stall::Of::runtime) {
    resumption.preparation = node_start(input_, state.plan.get(), *to);
  }
  resumption.plan = std::move(change.plan);
  resumption.reason = std::move(change.reason);
  const models::JobState seen = known(state);
  models::RecoveryDecision decision = resume(input_, seen, resumption);
  if (decision.resume_iteration < state.iteration || what.job) {
    resumption.reinitialize = restart_stall(state.plan.get(), *to);
    if (decision.resume_iteration < state.iteration)
      resumption.reason += "; no replica is left of some layers: restart from the checkpoint";
    decision = resume(input_, seen, resumption);
  }
  return decision;
}

models::RecoveryDecision ElasticPolicy::after_loss(const models::JobState& state,
                                                   const EventSummary& what) const {
  // What is about to leave is used only if there is no other way.
  const std::vector<DeviceId> stay = usable(state);
  models::Infeasible why;
  for (const std::vector<DeviceId>* live : {&stay, &state.live}) {
    if (live != &stay && stay == state.live) break;
    if (state.plan != nullptr && runs_on(*state.plan, *live)) {
      return resume_with(state, {state.plan, "the same plan again"}, what, false);
    }
    std::string reason = "planned for what lives";
    if (state.plan != nullptr) {
      auto change = shrink(state, *live);
      if (auto* found = std::get_if<ElasticChange>(&change)) {
        return resume_with(state, std::move(*found), what, false);
      }
      const auto& none = std::get<models::Infeasible>(change);
      reason = fmt::format("planned anew: {}: {}", none.constraint, none.witness);
    }
    auto plan = first_plan(*live);
    if (auto* found = std::get_if<models::PlanPointer>(&plan)) {
      const bool searched = home_plan(input_, *live) == nullptr;
      return resume_with(state, {std::move(*found), std::move(reason), searched}, what, false);
    }
    why = std::get<models::Infeasible>(std::move(plan));
  }
  return wait(why);
}

models::RecoveryDecision ElasticPolicy::on_events(const models::JobState& state,
                                                  std::span<const ir::ClusterEvent> events) const {
  const EventSummary what = summarize(events);
  // Devices that come, notices and slow devices do not restart a recovery.
  if (!what.failure && was_recovering(state, events, input_.cluster)) {
    return proceed("the recovery goes on");
  }
  if (!state.training || state.plan == nullptr || what.job || !runs_on(*state.plan, state.live)) {
    return after_loss(state, what);
  }
  const std::vector<DeviceId> stay = usable(state);
  if (honors_preemption_notice() && !runs_on(*state.plan, stay)) {
    auto change = shrink(state, stay);
    if (auto* found = std::get_if<ElasticChange>(&change)) {
      return resume_with(state, std::move(*found), what, true);
    }
    return proceed("no plan without the devices that will leave: on as long as they live");
  }
  if (what.capacity || events.empty()) {
    if (keeps_pending(state, phases_.decide.duration)) {
      return proceed("a switch is on its way");
    }
    if (std::optional<ElasticChange> change = grow(state, stay)) {
      return resume_with(state, std::move(*change), what, true);
    }
    return proceed("new devices are not used yet");
  }
  return proceed("the running plan's devices all live");
}

}  // namespace orrery::planners
