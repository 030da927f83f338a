#include "planners/recovery/kit/checkpointed.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "models/reshard/reshard_plan.h"
#include "planners/catalog.h"
#include "planners/recovery/kit/transfer_estimate.h"

namespace orrery::planners {
namespace {

/// The decision's state lies in GPU memory when it starts: what is written first, then read.
models::JobState with_saved(const models::JobState& state, ir::Location location) {
  models::JobState result = state;
  std::erase_if(result.replicas, [&](const models::StateReplica& copy) {
    return copy.iteration == state.iteration && copy.location == location;
  });
  models::StateReplica saved;
  saved.iteration = state.iteration;
  saved.location = location;
  saved.layout = state.plan;
  result.replicas.insert(result.replicas.begin(), std::move(saved));
  return result;
}

/// How many nodes the devices (ascending) lie on.
std::size_t nodes_of(const std::vector<DeviceId>& devices, const models::Cluster& cluster) {
  std::set<NodeId> nodes;
  for (const DeviceId device : devices) nodes.insert(cluster.device(device).node);
  return nodes.size();
}

}  // namespace

std::vector<std::pair<Growth, const char*>> enum_names(Growth) {
  return {{Growth::never, "never"}, {Growth::profitable, "pays"}, {Growth::always, "always"}};
}

void describe_checkpointed(config::Visitor& v, CheckpointedSettings& settings) {
  describe_phases(v, settings.phases);
  describe_planner(v, settings.planner, settings.planner_options,
                   "Planner of the catalog that makes plans for what is left.");
  v.optional("grow", settings.grow,
             "never: devices that come wait for the next restart; pays: they are taken in when the "
             "faster plan wins the stall back before the next interruption to be expected; always: "
             "whenever the plan is faster.");
  v.optional("slowest", settings.slowest,
             "Devices slower than this share of their speed are left out when a plan is chosen; 0: "
             "none.");
  v.between("slowest", settings.slowest, 0.0, 1.0);
}

CheckpointedRules restart_from(ir::Location location, bool drops_nodes) {
  CheckpointedRules rules;
  rules.order = location == ir::Location::cloud
                    ? std::vector{StateSource::cloud}
                    : std::vector{StateSource::own_nvme, StateSource::peer_nvme};
  rules.drops_nodes = drops_nodes;
  rules.save_first = location;
  return rules;
}

CheckpointedPolicy::CheckpointedPolicy(const PolicyInput& input, CheckpointedSettings settings,
                                       CheckpointedRules rules)
    : input_(input),
      settings_(std::move(settings)),
      rules_(std::move(rules)),
      replanner_(input_, settings_.planner, settings_.planner_options.values) {
  settings_.phases = settled(std::move(settings_.phases), input_.runtime);
  if (rules_.restart_processes) {
    rules_.restart_processes =
        settled(std::move(*rules_.restart_processes), settings_.phases.constants);
  }
}

FoundPlan CheckpointedPolicy::first_plan(const std::vector<DeviceId>& live) const {
  auto found = best(nullptr, live);
  if (auto* none = std::get_if<models::Infeasible>(&found)) return std::move(*none);
  return std::get<Choice>(std::move(found)).plan;
}

Seconds CheckpointedPolicy::time_of(const ir::Plan& plan) const {
  return input_.evaluator.evaluate(plan).iteration_time;
}

Seconds CheckpointedPolicy::restart_estimate(const ir::Plan& plan) const {
  return pay(settings_.phases.reinitialize,
             [&] { return planners::bring_up(input_, &plan, plan, rules_.bring_up); })
      .duration;
}

Stall CheckpointedPolicy::reinitialize(const ir::Plan*, const ir::Plan&) const {
  return settings_.phases.reinitialize;
}

/// The running plan, or the same with spares in its gaps; null: neither runs.
models::PlanPointer CheckpointedPolicy::kept(const models::PlanPointer& running,
                                             const std::vector<DeviceId>& usable) const {
  if (running == nullptr) return nullptr;
  if (runs_on(*running, usable)) return running;
  auto spared = with_spares(*running, input_.cluster, usable);
  return spared ? std::make_shared<const ir::Plan>(std::move(*spared)) : nullptr;
}

/// Keeps the running plan's shape where that is as large as it can be, so that a planner is asked
/// only for a new number of devices.
CheckpointedPolicy::Found CheckpointedPolicy::best(const models::PlanPointer& running,
                                                   const std::vector<DeviceId>& usable) const {
  const std::vector<DeviceId> fit =
      rules_.drops_nodes ? whole_nodes(input_.cluster, usable) : usable;
  const std::vector<DeviceId> room = planned_on(fit);
  const models::PlanPointer same = kept(running, usable);
  std::size_t largest = room.size();
  if (input_.plan) largest = std::min(largest, ir::devices_of(*input_.plan).size());
  if (same != nullptr && ir::devices_of(*same).size() >= largest) return Choice{same, false};
  if (auto home = home_plan(input_, usable)) return Choice{std::move(home), false};
  if (fit.empty() && !usable.empty()) {
    if (same != nullptr) return Choice{same, false};
    return models::Infeasible{
        "whole nodes",
        fmt::format("the policy drops nodes that lack a device, as all {} nodes that are left do",
                    nodes_of(usable, input_.cluster))};
  }
  FoundPlan found = replanner_.plan_for(room);
  if (std::holds_alternative<models::Infeasible>(found) && room != fit) {
    found = replanner_.plan_for(fit);  // Rather without spares than not at all.
  }
  auto* plan = std::get_if<models::PlanPointer>(&found);
  if (same != nullptr && (plan == nullptr || time_of(**plan) >= time_of(*same))) {
    return Choice{same, true};
  }
  if (plan == nullptr) return std::get<models::Infeasible>(std::move(found));
  return Choice{std::move(*plan), true};
}

/// Planning, where the planner is asked.
Stall CheckpointedPolicy::decide(const Choice& choice) const {
  return pay(settings_.phases.decide, [&] {
    const std::string asked[] = {settings_.planner};
    return search_time(input_, std::span(asked, choice.searched ? 1 : 0));
  });
}

Stall CheckpointedPolicy::bring_up(const models::JobState& state, const ir::Plan& next,
                                   bool job_failed, bool prepared) const {
  const auto priced = [&] {
    BringUp how = rules_.bring_up;
    how.prepared = prepared;
    if (job_failed) how.processes = Processes::restart;
    return planners::bring_up(input_, state.plan.get(), next, how);
  };
  const bool in_place = job_failed && rules_.restart_processes && &next == state.plan.get();
  return pay(in_place ? *rules_.restart_processes : reinitialize(state.plan.get(), next), priced);
}

models::RecoveryDecision CheckpointedPolicy::on_events(
    const models::JobState& state, std::span<const ir::ClusterEvent> events) const {
  const EventSummary what = summarize(events);
  const bool runs =
      state.training && state.plan != nullptr && !what.job && runs_on(*state.plan, state.live);
  const std::vector<DeviceId> good = usable(state, settings_.slowest);
  if (!runs && !what.failure && was_recovering(state, events, input_.cluster) &&
      runs_on(*state.plan, good)) {
    const Found found = best(state.plan, good);
    const auto* choice = std::get_if<Choice>(&found);
    if (choice != nullptr && choice->plan == state.plan) return proceed("the recovery goes on");
  }
  if (!runs) return recover(state, what);
  if (!runs_on(*state.plan, good)) return leave(state, good);
  if (what.capacity) return grow(state, good);
  return proceed("the plan's devices all live");
}

models::RecoveryDecision CheckpointedPolicy::recover(const models::JobState& state,
                                                     const EventSummary& what) const {
  // What is slow or about to leave is used only if there is no other way.
  const std::vector<DeviceId> good = usable(state, settings_.slowest);
  Found found = best(state.plan, good);
  if (std::holds_alternative<models::Infeasible>(found) && good != state.live) {
    found = best(state.plan, state.live);
  }
  if (const auto* why = std::get_if<models::Infeasible>(&found)) {
    return wait(*why);
  }
  models::RecoveryDecision decision;
  decision.action = models::RecoveryDecision::Action::resume;
  const Choice choice = std::get<Choice>(std::move(found));
  decision.plan = choice.plan;
  const bool same = decision.plan == state.plan;
  decision.reason = same ? "the same plan again" : "a plan for the devices that are left";
  const models::ReshardBytes bytes = models::all_state_bytes(input_.job);
  auto newest = newest_restore(input_, state, *decision.plan, rules_.order, bytes);
  if (newest) {
    decision.resume_iteration = newest->iteration;
    decision.transfers = std::move(newest->restore.transfers);
  } else if (state.iteration > 0) {
    decision.reason += "; none of the checkpoints that it reads is complete";
  }
  if (what.failure) {
    add_phase(decision, PhaseKind::detect, detection(what, state, settings_.phases));
  }
  if (!same) add_phase(decision, PhaseKind::decide, decide(choice));
  if (!decision.transfers.empty()) {
    decision.phases.push_back({PhaseKind::move_state, Nanoseconds{0}, "simulated transfers"});
  }
  add_phase(decision, PhaseKind::reinitialize, bring_up(state, *decision.plan, what.job, false));
  return decision;
}

/// What a planned change does beside training: the search, then new nodes, where they have to be
/// started.
Seconds CheckpointedPolicy::preparation(const models::JobState& state, const Choice& choice) const {
  const Seconds search = decide(choice).duration;
  const bool priced = settings_.phases.reinitialize.of == Stall::Of::runtime;
  if (!priced || rules_.bring_up.warm_spares) return search;
  return search + node_start(input_, state.plan.get(), *choice.plan);
}

/// A planned change from the state that the GPUs hold: saved first where the policy restarts from
/// a checkpoint only.
models::RecoveryDecision CheckpointedPolicy::change(const models::JobState& state,
                                                    Choice choice) const {
  const models::ReshardBytes bytes = models::all_state_bytes(input_.job);
  models::RecoveryDecision decision;
  decision.action = models::RecoveryDecision::Action::resume;
  decision.plan = choice.plan;
  decision.resume_iteration = state.iteration;
  decision.run_on = to_nanoseconds(preparation(state, choice));
  Seconds save;
  models::JobState from = state;
  if (rules_.save_first) {
    const CheckpointCost cost = checkpoint_cost(input_, *state.plan, *rules_.save_first);
    save = cost.snapshot + cost.persist;
    from = with_saved(state, *rules_.save_first);
  }
  const Restore restore =
      plan_restore(input_, from, *decision.plan, {state.iteration, rules_.order, bytes});
  if (!restore.complete() && state.iteration > 0) {
    decision.action = models::RecoveryDecision::Action::proceed;
    decision.plan = nullptr;
    decision.reason = "the state cannot be moved: " + restore.witness;
    return decision;
  }
  if (restore.complete()) decision.transfers = restore.transfers;
  if (!decision.transfers.empty() || save.value > 0) {
    decision.phases.push_back({PhaseKind::move_state, to_nanoseconds(save),
                               save.value > 0 ? "checkpoint written in closed form, then simulated "
                                                "transfers"
                                              : "simulated transfers"});
  }
  add_phase(decision, PhaseKind::reinitialize, bring_up(state, *decision.plan, false, true));
  return decision;
}

models::RecoveryDecision CheckpointedPolicy::leave(const models::JobState& state,
                                                   const std::vector<DeviceId>& good) const {
  const std::optional<Instant> deadline = deadline_of(state);
  Found found = best(state.plan, good);
  if (const auto* why = std::get_if<models::Infeasible>(&found)) {
    return proceed(fmt::format("no plan without the devices that leave: {}", why->constraint));
  }
  models::RecoveryDecision decision = change(state, std::get<Choice>(std::move(found)));
  if (decision.action == models::RecoveryDecision::Action::proceed) return decision;
  if (!deadline) {  // Slow devices only.
    if (time_of(*decision.plan) >= time_of(*state.plan) * (1 / settings_.slowest)) {
      return proceed("no plan without the slow devices is faster");
    }
    decision.reason = "without the slow devices";
    return decision;
  }
  decision.reason = "checkpoint and change of plan before the devices leave";
  return before_deadline(input_, state, *deadline, std::move(decision));
}

models::RecoveryDecision CheckpointedPolicy::grow(const models::JobState& state,
                                                  const std::vector<DeviceId>& good) const {
  if (settings_.grow == Growth::never) return proceed("new devices wait for the next restart");
  if (keeps_pending(state, settings_.phases.decide.duration))
    return proceed("a switch is on its way");
  const Found found = best(state.plan, good);
  const auto* choice = std::get_if<Choice>(&found);
  if (choice == nullptr || choice->plan == state.plan) {
    return proceed("no faster plan with the new devices");
  }
  const Seconds before = time_of(*state.plan);
  const Seconds after = time_of(*choice->plan);
  if (after >= before) return proceed("no faster plan with the new devices");
  models::RecoveryDecision decision = change(state, *choice);
  if (decision.action == models::RecoveryDecision::Action::proceed) return decision;
  const Seconds expected{1 / expected_interruptions(input_)};
  const Seconds stall = stall_estimate(input_, decision);
  if (settings_.grow == Growth::profitable &&
      !growth_is_profitable(before, after, stall, expected)) {
    return proceed(
        fmt::format("a stall of {:.0f} s for {:.1f} % more speed does not pay in {:.0f} s",
                    stall.value, 100 * (before / after - 1), expected.value));
  }
  decision.reason = "a faster plan with the new devices";
  return decision;
}

std::vector<models::CheckpointLevel> MemoryCloudPolicy::checkpoints(const ir::Plan& plan,
                                                                    Seconds iteration_time) const {
  std::vector<models::CheckpointLevel> levels;
  if (memory_.replicas > 0) levels = in_memory_checkpoints(input(), plan, iteration_time, memory_);
  const auto cloud =
      cloud_checkpoint(input(), cloud_, plan, restart_estimate(plan), iteration_time);
  levels.insert(levels.end(), cloud.begin(), cloud.end());
  return levels;
}

void describe_replicas(config::Visitor& v, const char* name, InMemorySettings& memory, int least,
                       const char* doc) {
  v.optional(name, memory.replicas, doc);
  v.between(name, memory.replicas, least, 1'000);
}

void describe_gemini_cloud_interval(config::Visitor& v, OptionalInterval& interval) {
  v.optional(
      "cloud_interval", interval,
      "Between checkpoints to the cloud: auto (Young's), own (3 h, as for BLOOM [Gemini, 7.1, "
      "unverified]), never, young, daly, availability, tuned, or seconds. Without object "
      "storage there are none.");
}

}  // namespace orrery::planners
