// A recovery policy that never changes its plan: it waits until all devices of the plan are back,
// and loads the newest checkpoint from the cloud.
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "planners/recovery/kit/answer.h"
#include "planners/recovery/kit/bring_up.h"
#include "planners/recovery/kit/checkpointing.h"
#include "planners/recovery/recovery.h"

namespace example {

using namespace orrery;

struct PatientSettings {
  planners::Phases phases;
  std::string planner = "megatron_grid";
  planners::OptionalInterval checkpoint_interval;
};

void describe(config::Visitor& v, PatientSettings& s) {
  planners::describe_phases(v, s.phases);
  planners::describe_planner(v, s.planner, "Planner that makes the plan.");
  v.optional("checkpoint_interval", s.checkpoint_interval,
             "Between checkpoints: auto, young, daly, availability, tuned, seconds, or never.");
}

class Patient final : public models::RecoveryPolicy {
 public:
  using Settings = PatientSettings;
  static planners::MadePolicy make(const planners::PolicyInput& input, const Settings& s) {
    if (auto problem = planners::location_problem(input.cluster, ir::Location::cloud)) {
      return *problem;
    }
    return std::make_unique<Patient>(input, s);
  }
  Patient(const planners::PolicyInput& input, const Settings& s)
      : input_(input), settings_(s), replanner_(input_, s.planner) {
    settings_.phases = planners::settled(s.phases, input_.runtime);
  }

  std::string name() const override { return "patient"; }

  std::variant<models::PlanPointer, models::Infeasible> first_plan(
      const std::vector<DeviceId>& live) const override {
    if (auto home = planners::home_plan(input_, live)) return home;
    return replanner_.plan_for(live);
  }

  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override {
    return planners::cloud_checkpoint(input_, settings_.checkpoint_interval, plan,
                                      restart(&plan, plan).duration, iteration_time);
  }

  models::RecoveryDecision on_events(const models::JobState& state,
                                     std::span<const ir::ClusterEvent> events) const override {
    const planners::EventSummary what = planners::summarize(events);
    models::PlanPointer plan = state.plan;
    if (plan == nullptr) {
      auto first = first_plan(state.live);
      if (const auto* why = std::get_if<models::Infeasible>(&first)) return planners::wait(*why);
      plan = std::get<models::PlanPointer>(first);
    }
    if (!planners::runs_on(*plan, state.live)) {
      return planners::wait("devices of the plan are gone");
    }
    if (state.training && !what.job) return planners::proceed("the plan's devices are all alive");
    if (!what.failure && planners::was_recovering(state, events, input_.cluster)) {
      return planners::proceed("the recovery goes on");
    }
    planners::Resumption back;
    back.plan = plan;
    back.order = {planners::StateSource::cloud};
    back.detect = planners::detection(what, state, settings_.phases);
    back.decide = settings_.phases.decide;
    back.reinitialize = restart(state.plan.get(), *plan);
    back.reason = "the same plan, from the newest checkpoint";
    return planners::resume(input_, state, back);
  }

 private:
  planners::Stall restart(const ir::Plan* from, const ir::Plan& to) const {
    return planners::pay(settings_.phases.reinitialize, [&] {
      return planners::bring_up(input_, from, to, {.processes = planners::Processes::restart});
    });
  }

  planners::PolicyInput input_;
  PatientSettings settings_;
  planners::Replanner replanner_;  // refers to input_
};

extern const planners::RecoveryEntry kPatient;
constinit const planners::RecoveryEntry kPatient = planners::recovery_entry<Patient>({
    .name = "patient",
    .source = "example of docs/howto/modules.md",
    .recovers = "waits for all devices of its plan and loads the newest checkpoint",
    .needs = "object storage; any plan",
    .loses = "what came after the newest checkpoint",
    .slow = planners::kKeepsSlowDevices,
    .deviations = "no source of its own",
});

}  // namespace example
