/// The frame of policies that go back to a checkpoint: keep the plan if it still runs, put spares
/// in its gaps, else plan anew for what is left; grow back when that pays; leave before a
/// preemption when everything fits before the deadline. Where checkpoints lie and what phases take
/// is the policies' own.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "models/interfaces/recovery_policy.h"
#include "planners/kit/options.h"
#include "planners/recovery/kit/answer.h"
#include "planners/recovery/kit/replan.h"
#include "planners/recovery/kit/restore.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// When a policy takes devices in that come while it trains.
enum class Growth {
  never,   ///< Only at the next restart.
  pays,    ///< If until the next interruption to be expected the faster plan wins back the stall.
  always,  ///< Whenever the new plan is faster.
};

struct CheckpointedRules {
  std::string planner;  ///< Of the catalog.
  Options planner_options;
  std::vector<StateSource> order;  ///< Where state may come from, best first.
  Phases phases;
  Stall restart_processes;   ///< When the job failed and the plan stays.
  bool drops_nodes = false;  ///< A new plan does not use nodes that lack a device.
  double slowest = 0;        ///< Devices slower than that are left out of plans.
  Growth growth = Growth::pays;
  /// Where a planned change first writes a checkpoint; none: what the GPUs hold serves it.
  std::optional<ir::Location> save_first;
};

/// Options that all these policies have.
std::vector<OptionInfo> checkpointed_options(const PhaseDefaults& phases = {},
                                             const char* planner = "megatron_grid");
/// `infos` are the policy's options, for the sources of phases. The rest of the rules (order,
/// save_first, drops_nodes) is the policy's.
std::variant<CheckpointedRules, PlannerEntry::BadOption> read_checkpointed(
    OptionReader& reader, const std::vector<OptionInfo>& infos);

class CheckpointedPolicy : public models::RecoveryPolicy {
 public:
  std::variant<models::PlanPointer, models::Infeasible> first_plan(
      const std::vector<DeviceId>& live) const final;
  models::RecoveryDecision on_events(const models::JobState& state,
                                     std::span<const ir::ClusterEvent> events) const final;

 protected:
  /// Copies `input` (not what it refers to).
  CheckpointedPolicy(const PolicyInput& input, CheckpointedRules rules);

  /// The devices of `usable` (ascending) to plan on; the rest are spares.
  virtual std::vector<DeviceId> planned_on(const std::vector<DeviceId>& usable) const {
    return usable;
  }
  /// Re-initialization of `next` after a loss or a planned change; `running` may be null.
  virtual Stall reinitialize(const ir::Plan* running, const ir::Plan& next) const;
  const PolicyInput& input() const { return input_; }
  const CheckpointedRules& rules() const { return rules_; }

 private:
  using Found = std::variant<models::PlanPointer, models::Infeasible>;
  Found best(const models::PlanPointer& running, const std::vector<DeviceId>& usable) const;
  models::PlanPointer kept(const models::PlanPointer& running,
                           const std::vector<DeviceId>& usable) const;
  models::RecoveryDecision recover(const models::JobState& state, const Happening& what) const;
  models::RecoveryDecision leave(const models::JobState& state,
                                 const std::vector<DeviceId>& usable) const;
  models::RecoveryDecision grow(const models::JobState& state,
                                const std::vector<DeviceId>& usable) const;
  models::RecoveryDecision change(const models::JobState& state, models::PlanPointer plan) const;
  Seconds stall_of(const models::RecoveryDecision& decision) const;
  Seconds time_of(const ir::Plan& plan) const;

  PolicyInput input_;
  CheckpointedRules rules_;
  Replanner replanner_;  ///< Refers to input_.
};

}  // namespace orrery::planners
