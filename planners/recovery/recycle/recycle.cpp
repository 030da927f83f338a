// ReCycle: nothing moves at a failure. The micro-batches of a lost stage are computed by the same
// stage of the other data-parallel pipelines, spread evenly, if possible in their bubbles: the
// backward pass is decoupled, so that weights' gradients wait for idle time, and each stage steps
// on its own, so that idle time at the end of an iteration and at the start of the next is one.
// Devices that come back get their state from a peer. [Gandhi et al., SOSP 2024; arXiv 2405.14009,
// SlipStream]
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "models/check/validate.h"
#include "models/ir/names.h"
#include "planners/kit/plan_parts.h"
#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/elastic.h"
#include "planners/recovery/kit/replica_planner.h"
#include "planners/recovery/kit/unit_chains.h"
#include "planners/recovery/recycle/reroutes.h"

namespace orrery::planners {

extern const RecoveryEntry kRecycleRecovery;

namespace {

enum class Decoupling { on, if_allowed, never };
enum class MemoryRule { must_fit, ignore };

std::vector<std::pair<Decoupling, const char*>> enum_names(Decoupling) {
  return {
      {Decoupling::on, "on"}, {Decoupling::if_allowed, "if_allowed"}, {Decoupling::never, "never"}};
}
std::vector<std::pair<MemoryRule, const char*>> enum_names(MemoryRule) {
  return {{MemoryRule::must_fit, "must_fit"}, {MemoryRule::ignore, "ignore"}};
}

struct RecycleSettings {
  Phases phases = {
      .decide = {{0},
                 "Seconds of planning; 0: schedules for all numbers of failures are planned "
                 "beforehand [ReCycle; no figure obtained]."},
      .reinitialize = {{0},
                       "Seconds to change the schedule; 0: no process and no communicator changes "
                       "[ReCycle; no figure obtained]."},
      .restart = kRestart};
  std::string planner = "megatron_grid";
  Decoupling decoupled_backward = Decoupling::on;
  ir::OptimizerStart optimizer = ir::OptimizerStart::staggered;
  MemoryRule memory = MemoryRule::must_fit;
  Spares spares = Spares::leave;
  OptionalInterval checkpoint_interval;
};

void describe(config::Visitor& v, RecycleSettings& s) {
  describe_phases(v, s.phases);
  describe_planner(v, s.planner,
                   "Who makes the first plan, and a new one when a stage has no peer left: a name "
                   "of the catalog of planners.");
  v.optional("decoupled_backward", s.decoupled_backward,
             "on: plans with reroutes run zero_bubble, whose backward pass is split, where the "
             "activations fit; undisturbed plans keep their schedule, so that the job need not "
             "allow it; if_allowed: only if the job allows zero_bubble; never: the schedule of the "
             "plan. [ReCycle, decoupled back-propagation]");
  v.optional("optimizer", s.optimizer,
             "staggered: a stage steps when its own gradients are synchronized and begins the next "
             "iteration without waiting for other stages, in all plans, undisturbed ones and the "
             "user's included, so that an iteration lasts as long as the pace of many; together: "
             "the next iteration begins when all have stepped, as a norm over all gradients "
             "demands. [ReCycle, staggered optimizer]");
  v.optional("memory", s.memory,
             "must_fit: a rerouted plan whose activations do not fit is not used; ignore: it is. "
             "The verdict takes all rerouted micro-batches as held at once, ReCycle's own schedule "
             "holds fewer.");
  describe_spares(v, s.spares);
  describe_checkpoint_interval(v, s.checkpoint_interval);
}

class Recycle final : public ElasticPolicy {
 public:
  using Settings = RecycleSettings;
  static MadePolicy make(const PolicyInput& input, const Settings& s) {
    if (auto problem = ReplicaPlanner::job_problem(input.job)) return *problem;
    if (input.plan) {
      if (auto problem = zero_off_problem(*input.plan, "stages that take over")) return *problem;
    }
    return std::make_unique<Recycle>(input, s);
  }
  Recycle(const PolicyInput& input, const Settings& s)
      : ElasticPolicy(stepping(input, s), s.phases, s.checkpoint_interval),
        settings_(s),
        planner_(input, s.planner),
        roomy_(input, s.planner, strongest_recompute(input.job)) {}

  std::string name() const override { return kRecycleRecovery.name; }

 protected:
  /// A plan in which the peers of a lost first stage, which hold most activations, have room for
  /// its micro-batches; with the strongest recomputation if need be.
  FoundPlan fresh(const std::vector<DeviceId>& live) const override {
    auto plan = stepping(planner_.plan_for(live));
    const auto* tight = std::get_if<models::PlanPointer>(&plan);
    if (tight == nullptr || leaves_room(**tight)) return plan;
    auto other = stepping(roomy_.plan_for(live));
    const auto* found = std::get_if<models::PlanPointer>(&other);
    return found != nullptr && leaves_room(**found) ? other : plan;
  }

  FoundChange shrink(const models::JobState& state,
                     const std::vector<DeviceId>& live) const override {
    return around(*state.plan, live, undisturbed(*state.plan));
  }

  std::optional<ElasticChange> grow(const models::JobState& state,
                                    const std::vector<DeviceId>& live) const override {
    const ir::Plan& plan = *state.plan;
    const bool reroutes = std::any_of(plan.pipelines.begin(), plan.pipelines.end(),
                                      [](const ir::Pipeline& p) { return !p.reroutes.empty(); });
    if (reroutes) {
      auto found = around(plan, live, undisturbed(plan));
      auto* change = std::get_if<ElasticChange>(&found);
      if (change != nullptr && ir::working_devices(*change->plan) != ir::working_devices(plan)) {
        return std::move(*change);
      }
      return takes_spares() ? on_spares(plan, live) : std::nullopt;
    }
    // A fresh plan over more devices after a smaller one, if it is faster. The user's is as large
    // as it is meant to be.
    if (input().plan && ir::devices_of(plan).size() >= ir::devices_of(*input().plan).size()) {
      return std::nullopt;
    }
    auto made = fresh(live);
    auto* larger = std::get_if<models::PlanPointer>(&made);
    if (larger == nullptr || ir::devices_of(**larger).size() <= ir::devices_of(plan).size()) {
      return std::nullopt;
    }
    const Seconds time = input().evaluator.evaluate(**larger).iteration_time;
    if (time >= state.iteration_time) return std::nullopt;
    return ElasticChange{std::move(*larger), "more devices: planned anew", true};
  }

  std::string planner() const override { return settings_.planner; }
  bool takes_spares() const override { return settings_.spares == Spares::take; }

 private:
  /// The plan as it was before it was rerouted, with spares in its gaps.
  std::optional<ElasticChange> on_spares(ir::Plan plan, const std::vector<DeviceId>& live) const {
    plan.schedule = undisturbed(plan);
    for (ir::Pipeline& pipeline : plan.pipelines) pipeline.reroutes.clear();
    auto whole = with_spares(plan, input().cluster, live);
    if (!whole || !problem_with(*whole).empty()) return std::nullopt;
    return ElasticChange{std::make_shared<const ir::Plan>(std::move(*whole)),
                         "spares in the place of lost devices"};
  }

  /// The user's plan steps as all others do: the same reference with and without failures.
  static PolicyInput stepping(PolicyInput input, const RecycleSettings& settings) {
    if (input.plan) input.plan->optimizer = settings.optimizer;
    return input;
  }

  FoundPlan stepping(FoundPlan made) const {
    const auto* found = std::get_if<models::PlanPointer>(&made);
    if (found == nullptr || (*found)->optimizer == settings_.optimizer) return made;
    ir::Plan plan = **found;
    plan.optimizer = settings_.optimizer;
    plan.predicted.reset();  // The planner's, which ignores it.
    return std::make_shared<const ir::Plan>(std::move(plan));
  }

  /// The plan around what is dead, or whole again.
  FoundChange around(const ir::Plan& plan, const std::vector<DeviceId>& live,
                     ir::ScheduleKind undisturbed) const {
    auto made = reroute(plan, live);
    if (auto* none = std::get_if<models::Infeasible>(&made)) return std::move(*none);
    ir::Plan rerouted = std::get<ir::Plan>(std::move(made));
    const std::size_t dead = dead_stages(plan, live).size();
    std::vector<ir::ScheduleKind> schedules = {undisturbed};
    const auto split = ir::ScheduleKind::zero_bubble;
    std::string off = why_not_decoupled(plan);
    if (dead > 0 && off.empty() && undisturbed != split) {
      schedules.insert(schedules.begin(), split);
    }
    std::string problem;
    for (const ir::ScheduleKind schedule : schedules) {
      rerouted.schedule = schedule;
      problem = problem_with(rerouted);
      if (!problem.empty()) {
        if (off.empty()) off = problem;
        continue;
      }
      std::string what = "all stages compute again";
      if (dead > 0) {
        what = fmt::format("micro-batches of {} stage(s) rerouted, ", dead) +
               (schedule == split ? "backward passes decoupled" : "decoupled backward off: " + off);
      }
      return ElasticChange{std::make_shared<const ir::Plan>(std::move(rerouted)), std::move(what)};
    }
    return models::Infeasible{"rerouted plan", problem};
  }

  /// Why reroutes of the plan do not split the backward pass; empty: they do.
  std::string why_not_decoupled(const ir::Plan& plan) const {
    const auto& allowed = input().job.allowed.schedules;
    const bool is_allowed =
        std::count(allowed.begin(), allowed.end(), ir::ScheduleKind::zero_bubble) > 0;
    if (settings_.decoupled_backward == Decoupling::never) return "option decoupled_backward";
    if (settings_.decoupled_backward == Decoupling::if_allowed && !is_allowed) {
      return "the job allows no zero_bubble";
    }
    return plan.virtual_stages == 1 ? "" : "the plan has virtual stages";
  }

  bool leaves_room(const ir::Plan& plan) const {
    std::vector<DeviceId> live = ir::devices_of(plan);
    for (const DeviceId lost : ir::devices_of(plan.pipelines.front().stages.front())) {
      std::erase(live, lost);
    }
    return std::holds_alternative<ElasticChange>(around(plan, live, plan.schedule));
  }

  std::string problem_with(const ir::Plan& plan) const {
    const auto defects = models::validate(plan, input().cluster, input().workload, input().job);
    if (!defects.empty()) return defects.front().path + ": " + defects.front().what;
    return settings_.memory == MemoryRule::must_fit ? problem_of(input(), plan) : "";
  }

  /// The schedule of a plan before it was rerouted.
  ir::ScheduleKind undisturbed(const ir::Plan& plan) const {
    if (std::all_of(plan.pipelines.begin(), plan.pipelines.end(),
                    [](const ir::Pipeline& p) { return p.reroutes.empty(); })) {
      return plan.schedule;
    }
    const std::vector<DeviceId> devices = ir::devices_of(plan);
    if (input().plan && ir::devices_of(*input().plan).size() == devices.size()) {
      return input().plan->schedule;  // That plan, on spares perhaps.
    }
    const auto made = fresh(devices);
    const auto* original = std::get_if<models::PlanPointer>(&made);
    return original != nullptr ? (*original)->schedule : plan.schedule;
  }

  RecycleSettings settings_;
  ReplicaPlanner planner_;
  ReplicaPlanner roomy_;  ///< With the strongest recomputation only.
};

}  // namespace

constinit const RecoveryEntry kRecycleRecovery = recovery_entry<Recycle>({
    .name = "recycle",
    .source = "ReCycle (Gandhi et al., SOSP 2024)",
    .recovers = "micro-batches of a lost stage go to the same stage of other pipelines; devices "
                "that come back get their state from a peer",
    .needs = "ZeRO off; two equal pipelines at least",
    .loses = "the iteration in flight; what came after the last checkpoint once all copies of a "
             "stage are lost",
    .slow = kKeepsSlowDevices,
    .deviations = "the order of passes is that of ZB-H1 with rerouted ones behind own ones, where "
                  "ReCycle solves an integer program, so that staggering gains nothing where "
                  "transfers or gradients to synchronize make the first stage end last; a stage "
                  "begins the next iteration when all its own passes of this one have ended, they "
                  "do not mix; undisturbed plans are staggered too, so that goodput is not that of "
                  "staggering; the iteration in flight is lost; spare devices are used only once a "
                  "stage has no peer left, unless spares=take",
});

}  // namespace orrery::planners
