/// The frame of policies that switch to a plan of a planner, their own unless another one is asked
/// for (autohet, hetu): when to keep the plan, when to ask the planner, whether more devices are
/// worth a switch. A policy says how the state gets to the new plan.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/base/time.h"
#include "models/base/units.h"
#include "models/interfaces/recovery_policy.h"
#include "planners/recovery/kit/answer.h"
#include "planners/recovery/kit/bring_up.h"
#include "planners/recovery/kit/replan.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

struct SwitchingSettings {
  Phases phases = {};
  std::string planner;
  PlannerOptions planner_options = {};
  Seconds horizon = {};  ///< Until the next interruption; 0: 1 / expected_interruptions().
  double slowest = 0;    ///< Devices slower than that are left out of plans.
};
void describe_switching(config::Visitor& v, SwitchingSettings& settings);

class SwitchingPolicy : public models::RecoveryPolicy {
 public:
  /// How a planner of the catalog is asked.
  struct Asked {
    std::string planner;
    Options options;
    bool whole_replicas = false;  ///< As ReplicaPlanner asks.
  };
  /// Copies `input` (not what it refers to). `planners`: asked in this order, the first plan
  /// counts.
  SwitchingPolicy(const PolicyInput& input, SwitchingSettings settings,
                  const std::vector<Asked>& planners);

  /// home_plan(), else the planner's.
  FoundPlan first_plan(const std::vector<DeviceId>& live) const final;
  /// Something of the plan is lost: the same plan if all its devices stay, else first_plan(), and
  /// recover(). More devices: first_plan() if it uses other ones and
  /// growth_is_profitable(). Devices of
  /// the plan that have been given notice: switch_to() a plan without them as late as it fits
  /// before they go. Devices slower than `slowest`: a plan without them, if that is faster.
  models::RecoveryDecision on_events(const models::JobState& state,
                                     std::span<const ir::ClusterEvent> events) const final;

 protected:
  /// Restart on `plan`, which uses live devices only. `phases`: detection and planning so far.
  virtual models::RecoveryDecision recover(const models::JobState& state, models::PlanPointer plan,
                                           std::vector<models::RecoveryPhase> phases) const = 0;
  /// Change to `plan` at the end of an iteration, nothing is lost; none: not possible without loss.
  /// The frame says how long it is prepared beside training (run_on).
  virtual std::optional<models::RecoveryDecision> switch_to(const models::JobState& state,
                                                            models::PlanPointer plan) const = 0;

  /// What becomes of processes when training goes on in the policy's own way, and its own mechanism
  /// on top of the runtime's price (graph specialization).
  struct Way {
    Processes processes = Processes::restart;
    Stall mechanism = {};
  };
  virtual Way way() const { return {}; }

  /// Re-initialization in the policy's own way. `prepared`: new nodes were started beside training.
  Stall reinitialize(const models::JobState& state, const ir::Plan& next, bool prepared) const;
  const PolicyInput& input() const { return input_; }
  const SwitchingSettings& settings() const { return settings_; }

 private:
  /// A plan, and whether the planners were asked for it.
  struct Planned {
    FoundPlan plan;
    bool searched = false;
  };
  Planned planned_for(const std::vector<DeviceId>& live) const;
  Stall decide(bool searched) const;
  /// switch_to(), prepared beside training: the search, then new nodes.
  std::optional<models::RecoveryDecision> planned_change(const models::JobState& state,
                                                         const models::PlanPointer& plan,
                                                         bool searched) const;
  FoundPlan plan_for(const std::vector<DeviceId>& devices) const;
  models::RecoveryDecision on_join(const models::JobState& state,
                                   const std::vector<DeviceId>& good) const;
  models::RecoveryDecision leave(const models::JobState& state,
                                 const std::vector<DeviceId>& good) const;
  Seconds predicted_time(const models::JobState& state, const ir::Plan& plan) const;

  PolicyInput input_;
  SwitchingSettings settings_;
  std::vector<std::function<FoundPlan(const std::vector<DeviceId>&)>> sources_;
  std::vector<std::string> names_;  ///< Of the planners.
};

}  // namespace orrery::planners
