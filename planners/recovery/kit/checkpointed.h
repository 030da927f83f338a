/// The frame of policies that go back to a checkpoint: keep the plan if it still runs, put spares
/// in its gaps, else make a new plan for what is left; grow again when that is profitable; leave
/// before a preemption when everything fits before the deadline. A policy says where checkpoints
/// are and how long phases take.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/interfaces/recovery_policy.h"
#include "planners/recovery/kit/answer.h"
#include "planners/recovery/kit/bring_up.h"
#include "planners/recovery/kit/checkpointing.h"
#include "planners/recovery/kit/replan.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// When a policy starts to use devices that come while it trains.
enum class Growth {
  never,       ///< Only at the next restart.
  profitable,  ///< If growth_is_profitable() until the next interruption to be expected.
  always,      ///< Whenever the new plan is faster.
};
std::vector<std::pair<Growth, const char*>> enum_names(Growth);

/// Settings that all these policies have.
struct CheckpointedSettings {
  Phases phases = {};
  std::string planner = "megatron_grid";
  PlannerOptions planner_options = {};
  Growth grow = Growth::profitable;
  double slowest = 0;  ///< Devices slower than that are left out of plans.
};
void describe_checkpointed(config::Visitor& v, CheckpointedSettings& settings);

/// What such a policy does in its own way.
struct CheckpointedRules {
  std::vector<StateSource> order;  ///< Where state may come from, best first.
  bool drops_nodes = false;        ///< A new plan does not use nodes that lack a device.
  /// Where a planned change first writes a checkpoint; none: what the GPUs hold serves it.
  std::optional<ir::Location> save_first = {};
  /// When the job failed and the plan stays; none: as any restart.
  std::optional<Stall> restart_processes = {};
  /// How a plan is brought up; processes of a failed job start again in any case.
  BringUp bring_up = {};
};
/// Rules of policies whose checkpoints are all in one location, cloud or NVMe.
CheckpointedRules restart_from(ir::Location location, bool drops_nodes);

class CheckpointedPolicy : public models::RecoveryPolicy {
 public:
  FoundPlan first_plan(const std::vector<DeviceId>& live) const final;
  models::RecoveryDecision on_events(const models::JobState& state,
                                     std::span<const ir::ClusterEvent> events) const final;

 protected:
  /// Copies `input` (not what it refers to).
  CheckpointedPolicy(const PolicyInput& input, CheckpointedSettings settings,
                     CheckpointedRules rules);

  /// The devices of `usable` (ascending) to plan on; the rest are spares.
  virtual std::vector<DeviceId> planned_on(const std::vector<DeviceId>& usable) const {
    return usable;
  }
  /// The stall whose figure holds for `next` after a loss or a planned change where that does not
  /// follow the runtime; `running` may be null.
  virtual Stall reinitialize(const ir::Plan* running, const ir::Plan& next) const;
  /// A restart of all that the policy restarts, on the plan that ran: for rules of intervals.
  Seconds restart_estimate(const ir::Plan& plan) const;
  const PolicyInput& input() const { return input_; }
  const Phases& phases() const { return settings_.phases; }

 private:
  /// A plan, and whether the planner was asked for it.
  struct Choice {
    models::PlanPointer plan;
    bool searched = false;
  };
  using Found = std::variant<Choice, models::Infeasible>;
  Found best(const models::PlanPointer& running, const std::vector<DeviceId>& usable) const;
  Stall decide(const Choice& choice) const;
  Seconds preparation(const models::JobState& state, const Choice& choice) const;
  Stall bring_up(const models::JobState& state, const ir::Plan& next, bool job_failed,
                 bool prepared) const;
  models::PlanPointer kept(const models::PlanPointer& running,
                           const std::vector<DeviceId>& usable) const;
  models::RecoveryDecision recover(const models::JobState& state, const EventSummary& what) const;
  models::RecoveryDecision leave(const models::JobState& state,
                                 const std::vector<DeviceId>& usable) const;
  models::RecoveryDecision grow(const models::JobState& state,
                                const std::vector<DeviceId>& usable) const;
  models::RecoveryDecision change(const models::JobState& state, Choice choice) const;
  Seconds time_of(const ir::Plan& plan) const;

  PolicyInput input_;
  CheckpointedSettings settings_;
  CheckpointedRules rules_;
  Replanner replanner_;  ///< Refers to input_.
};

/// Policies that keep replicas of the checkpoint in host memory and another one in the cloud.
class MemoryCloudPolicy : public CheckpointedPolicy {
 public:
  /// One level for each replica in host memory, then the cloud's.
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const final;

 protected:
  /// `own`: of the policy's source, between checkpoints to the cloud.
  MemoryCloudPolicy(const PolicyInput& input, CheckpointedSettings settings,
                    CheckpointedRules rules, InMemorySettings memory, OptionalInterval cloud,
                    const CheckpointInterval& own)
      : CheckpointedPolicy(input, std::move(settings), std::move(rules)),
        memory_(memory),
        cloud_(chosen(cloud, own, phases().constants)) {}

 private:
  InMemorySettings memory_;
  OptionalInterval cloud_;
};

/// Setting `replicas`, or whatever its name, of such policies; at least `least`.
void describe_replicas(config::Visitor& v, const char* name, InMemorySettings& memory, int least,
                       const char* doc);
/// Setting `cloud_interval`, whose own value is Gemini's interval between checkpoints to the cloud.
inline const CheckpointInterval kGeminiCloudInterval = {CheckpointInterval::Rule::seconds,
                                                        {10'800}};
void describe_gemini_cloud_interval(config::Visitor& v, OptionalInterval& interval);

}  // namespace orrery::planners
