/// The frame of policies that change their own plan at a loss, at a notice and when devices come:
/// it finds out which of these happened, and what to do when there is no plan. A policy says how
/// plans change.
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
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// A plan and why, in words.
struct ElasticChange {
  models::PlanPointer plan;
  std::string reason;
  bool searched = false;  ///< A planner was asked for it.
};

using FoundChange = std::variant<ElasticChange, models::Infeasible>;

/// Setting `checkpoint_interval` of policies that need a checkpoint only when no replica is left.
void describe_checkpoint_interval(config::Visitor& v, OptionalInterval& interval);

/// What becomes of devices outside of the plan at a loss.
enum class Spares {
  leave,  ///< They wait until devices come or no other way is left.
  take,   ///< Started beside training once it goes on without the lost ones.
};
std::vector<std::pair<Spares, const char*>> enum_names(Spares);
/// Setting `spares`.
void describe_spares(config::Visitor& v, Spares& spares);

/// Why a job that does not allow ZeRO to be off cannot have a policy whose `what` must be whole.
std::optional<models::Infeasible> zero_off_problem(const models::Job& job, const char* what);
/// The same of a plan that the policy is to begin with.
std::optional<models::Infeasible> zero_off_problem(const ir::Plan& plan, const char* what);

class ElasticPolicy : public models::RecoveryPolicy {
 public:
  /// home_plan(), else fresh().
  FoundPlan first_plan(const std::vector<DeviceId>& live) const final;
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override;
  models::RecoveryDecision on_events(const models::JobState& state,
                                     std::span<const ir::ClusterEvent> events) const final;
  bool asks_after_recovery() const final { return takes_spares(); }

 protected:
  /// Copies `input` (not what it refers to). `phases`: reinitialize after a loss and before a
  /// planned change; restart, which must be there, after a rollback.
  ElasticPolicy(const PolicyInput& input, Phases phases, OptionalInterval checkpoint_interval);

  /// A plan on some of these devices (ascending) without regard to what ran before.
  virtual FoundPlan fresh(const std::vector<DeviceId>& live) const = 0;
  /// `state.plan` does not work on `live` any more: what replaces it, or why nothing can. Then the
  /// job continues as it would begin on `live` (first_plan()).
  virtual FoundChange shrink(const models::JobState& state,
                             const std::vector<DeviceId>& live) const = 0;
  /// Devices came, and `state.plan` works: a plan with them, if that is better.
  virtual std::optional<ElasticChange> grow(const models::JobState& state,
                                            const std::vector<DeviceId>& live) const = 0;
  /// What of the state may be used; `state` itself unless the policy keeps more, or less.
  virtual models::JobState known(const models::JobState& state) const { return state; }
  /// Re-initialization when training continues with `to` without a rollback. `planned`: nothing was
  /// lost. What follows the runtime is priced by the frame: processes stay.
  virtual Stall stall_of(const models::JobState&, const ir::Plan& /*to*/, bool /*planned*/) const {
    return phases_.reinitialize;
  }
  /// The planner that fresh() asks; empty: none.
  virtual std::string planner() const { return {}; }
  /// True: once a recovery has ended, grow() is asked for a plan with the spares that are there.
  virtual bool takes_spares() const { return false; }
  /// False: devices that have been given notice are used until they are gone.
  virtual bool honors_preemption_notice() const { return true; }

  const PolicyInput& input() const { return input_; }
  const Phases& phases() const { return phases_; }

 private:
  models::RecoveryDecision resume_with(const models::JobState& state, ElasticChange change,
                                       const EventSummary& what, bool planned) const;
  Stall restart_stall(const ir::Plan* from, const ir::Plan& to) const;
  models::RecoveryDecision after_loss(const models::JobState& state,
                                      const EventSummary& what) const;

  PolicyInput input_;
  Phases phases_;
  OptionalInterval checkpoint_interval_;
};

}  // namespace orrery::planners
