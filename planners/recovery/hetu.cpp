// Hetu v2: restart-free switching. After a loss the planner `hetu`, or another one of whole
// replicas, makes a plan in which every GPU that is left works; the processes specialize their
// graphs for it, and the state moves between GPU memories by fused batched send-receive. It needs
// at least one owner of every slice among the GPUs that are left: ZeRO off and two pipelines (A.3).
// Else the job restarts from a checkpoint. [Hetu v2, sections 5.3, 6.2, 7.2, 8, A.3]
//
// The paper states neither planning time ("pre-profiled results combined with a cost model", A.3),
// nor detection, nor what happens without an owner, nor how joins are answered: they are options.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include "models/base/ids.h"
#include "models/reshard/reshard_plan.h"
#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/checkpointing.h"
#include "planners/recovery/kit/switching.h"

namespace orrery::planners {

extern const RecoveryEntry kHetuRecovery;

namespace {

enum class MovedBytes { all, weights_and_master };

std::vector<std::pair<MovedBytes, const char*>> enum_names(MovedBytes) {
  return {{MovedBytes::all, "all"}, {MovedBytes::weights_and_master, "weights_and_master"}};
}

struct HetuRecoverySettings {
  SwitchingSettings switching = {
      .phases = {.reinitialize = {{10},
                                  "Seconds of graph specialization, operators and communication "
                                  "groups: \"within 10 seconds\" [Hetu v2, 8]."},
                 .restart = kRestart},
      .planner = "hetu"};
  int pipelines = 2;
  MovedBytes bytes = MovedBytes::all;
  double specialize = 10;
  CheckpointInterval interval;
};

void describe(config::Visitor& v, HetuRecoverySettings& s) {
  describe_switching(v, s.switching);
  v.optional("pipelines", s.pipelines,
             "Pipelines that the planner hetu makes, so that each slice has as many owners; other "
             "numbers where there is no such plan; 0: what it likes best. [A.3: 2]");
  v.between("pipelines", s.pipelines, 0, 1'000'000);
  v.optional("bytes", s.bytes,
             "What moves. all: weights, master copy, moments; weights_and_master: 6 bytes per "
             "parameter, which the volumes of Table 2 suggest.");
  v.optional("specialize", s.specialize,
             "Seconds of graph specialization, on top of the runtime's communicators: \"within 10 "
             "seconds\" together with these, which on its 32 GPUs are 0.1 s of the runtime's. "
             "[Hetu v2, 8]");
  v.between("specialize", s.specialize, 0.0, 1e7);
  v.optional("interval", s.interval,
             "Between checkpoints for losses that leave a slice without owner: auto (Young's), own "
             "(Daly's), young, daly, availability, tuned, or seconds.");
}

/// The paper's planner with the wanted number of pipelines, then with any; or another one.
std::vector<SwitchingPolicy::Asked> hetu_planners(const HetuRecoverySettings& settings) {
  const auto& [name, options] =
      std::tie(settings.switching.planner, settings.switching.planner_options.values);
  if (name != kHetuRecovery.name) return {{name, options, true}};
  Options own = {{"zero", "off"}};
  own.insert(own.end(), options.begin(), options.end());
  if (settings.pipelines <= 0) return {{name, own}};
  Options counted = {{"pipelines", std::to_string(settings.pipelines)}};
  counted.insert(counted.end(), own.begin(), own.end());
  return {{name, counted}, {name, own}};
}

constexpr const char* kSpecialization = "graph specialization [Hetu v2, 8]";

class HetuRecovery final : public SwitchingPolicy {
 public:
  using Settings = HetuRecoverySettings;
  static MadePolicy make(const PolicyInput& input, const Settings& s) {
    const auto& zero = input.job.allowed.zero_stages;
    if (std::count(zero.begin(), zero.end(), 0) == 0) {
      return models::Infeasible{"ZeRO off", "the job allows ZeRO stages from 1 up only [A.3]"};
    }
    return std::make_unique<HetuRecovery>(input, s);
  }
  HetuRecovery(const PolicyInput& input, const Settings& s)
      : SwitchingPolicy(input, s.switching, hetu_planners(s)),
        interval_(
            chosen(s.interval, {CheckpointInterval::Rule::daly, {}}, s.switching.phases.constants)),
        specialize_(s.specialize),
        moved_(s.bytes == MovedBytes::all ? models::all_state_bytes(input.job)
                                          : models::weight_bytes(input.job)),
        stored_(models::all_state_bytes(input.job)) {}

  std::string name() const override { return kHetuRecovery.name; }
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override;

 private:
  models::RecoveryDecision recover(const models::JobState& state, models::PlanPointer plan,
                                   std::vector<models::RecoveryPhase> phases) const override;
  std::optional<models::RecoveryDecision> switch_to(const models::JobState& state,
                                                    models::PlanPointer plan) const override;
  Way way() const override { return {Processes::stay, {Seconds{specialize_}, kSpecialization}}; }
  void restart(const models::JobState& state, models::RecoveryDecision& decision) const;
  void switch_plans(Restore restore, const Stall& stall, models::RecoveryDecision& decision) const;
  Stall restart_stall(const ir::Plan* from, const ir::Plan& to) const;

  CheckpointInterval interval_;
  double specialize_;
  models::ReshardBytes moved_;
  models::ReshardBytes stored_;
};

const std::vector<StateSource>& gpus() {
  static const std::vector<StateSource> kOrder = {StateSource::own_gpu, StateSource::peer_gpu};
  return kOrder;
}

const std::vector<StateSource>& checkpoint_order() {
  static const std::vector<StateSource> kOrder = {StateSource::own_nvme, StateSource::peer_nvme,
                                                  StateSource::cloud};
  return kOrder;
}

// One level, for losses that leave a slice without owner: the cloud, else NVMe, whose copies die
// with their nodes.
std::vector<models::CheckpointLevel> HetuRecovery::checkpoints(const ir::Plan& plan,
                                                               Seconds iteration_time) const {
  ir::Location location = ir::Location::cloud;
  if (location_problem(input().cluster, location)) location = ir::Location::nvme;
  if (location_problem(input().cluster, location)) return {};
  CheckpointCost cost = checkpoint_cost(input(), plan, location);
  const CheckpointTimes times{cost.snapshot, cost.snapshot + cost.persist,
                              restart_stall(&plan, plan).duration};
  models::CheckpointLevel level;
  level.location = location;
  level.every =
      iterations_between(interval_, times, iteration_time, expected_interruptions(input()));
  level.stall = to_nanoseconds(times.stall);
  level.persist = to_nanoseconds(times.persist);
  level.source = "PCIe, then storage beside training; assumed, the paper has no checkpoints";
  level.background = std::move(cost.uploads);
  return {level};
}

/// All processes start again.
Stall HetuRecovery::restart_stall(const ir::Plan* from, const ir::Plan& to) const {
  return pay(*settings().phases.restart,
             [&] { return bring_up(input(), from, to, {.processes = Processes::restart}); });
}

void HetuRecovery::switch_plans(Restore restore, const Stall& stall,
                                models::RecoveryDecision& decision) const {
  add_phase(decision, PhaseKind::reinitialize, stall);
  decision.phases.push_back(
      {PhaseKind::move_state, {}, "fused batched send-receive [Hetu v2, 6.2]"});
  const Bytes moved = restore.from[index_of(StateSource::peer_gpu)];
  decision.reason = fmt::format("restart-free switch, {:.1f} GB move", moved.value / 1e9);
  decision.transfers = std::move(restore.transfers);
}

void HetuRecovery::restart(const models::JobState& state,
                           models::RecoveryDecision& decision) const {
  add_phase(decision, PhaseKind::reinitialize, restart_stall(state.plan.get(), *decision.plan));
  auto newest = newest_restore(input(), state, *decision.plan, checkpoint_order(), stored_);
  if (!newest) {
    decision.reason += "no checkpoint: from the start";
    return;
  }
  decision.resume_iteration = newest->iteration;
  decision.transfers = std::move(newest->restore.transfers);
  decision.phases.push_back({PhaseKind::move_state, {}, "loading the checkpoint"});
  decision.reason += fmt::format("from the checkpoint of iteration {}", newest->iteration);
}

models::RecoveryDecision HetuRecovery::recover(const models::JobState& state,
                                               models::PlanPointer plan,
                                               std::vector<models::RecoveryPhase> phases) const {
  models::RecoveryDecision decision;
  decision.action = models::RecoveryDecision::Action::resume;
  decision.plan = std::move(plan);
  decision.phases = std::move(phases);
  if (const auto newest = newest_restore(input(), state, *decision.plan, gpus(), stored_)) {
    decision.resume_iteration = newest->iteration;
    switch_plans(plan_restore(input(), state, *decision.plan, {newest->iteration, gpus(), moved_}),
                 reinitialize(state, *decision.plan, false), decision);
    return decision;
  }
  const Restore lost =
      plan_restore(input(), state, *decision.plan, {state.iteration, gpus(), stored_});
  if (!lost.witness.empty()) {
    decision.reason = fmt::format("a slice without owner ({}): ", lost.witness);
  }
  restart(state, decision);
  return decision;
}

std::optional<models::RecoveryDecision> HetuRecovery::switch_to(const models::JobState& state,
                                                                models::PlanPointer plan) const {
  Restore restore = plan_restore(input(), state, *plan, {state.iteration, gpus(), moved_});
  if (!restore.complete()) return std::nullopt;
  models::RecoveryDecision decision;
  decision.action = models::RecoveryDecision::Action::resume;
  decision.plan = std::move(plan);
  decision.resume_iteration = state.iteration;
  switch_plans(std::move(restore), reinitialize(state, *decision.plan, true), decision);
  return decision;
}

}  // namespace

constinit const RecoveryEntry kHetuRecovery = recovery_entry<HetuRecovery>({
    .name = "hetu",
    .source = "Hetu v2, sections 6 and 7.2, A.3",
    .recovers = "restart-free switch to a plan in which every GPU works: graph specialization, "
                "then fused batched send-receive between GPU memories",
    .needs = "ZeRO off, two pipelines at least; else a checkpoint",
    .loses = "the iteration in flight; from the last checkpoint where a slice has no owner left",
    .slow = kLeavesOutSlowDevices,
    .deviations = "planning time, detection, checkpoints for a slice without owner and what "
                  "happens when devices come are not published and are options; a plan that is "
                  "searched for during training costs training nothing",
});

}  // namespace orrery::planners
