/// The frame of policies that change their own plan at a loss, at a notice and when devices come:
/// which of these it is, and what to do when there is no plan. How plans change is theirs.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "models/interfaces/recovery_policy.h"
#include "planners/recovery/kit/answer.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// A plan and why, in words.
struct ElasticChange {
  models::PlanPointer plan;
  std::string reason;
};

struct ElasticStalls {
  Phases phases;  ///< reinitialize: after a loss; restart: after a roll-back, or from nothing.
  Stall gain;     ///< Re-initialization when devices come or leave as announced.
};

class ElasticPolicy : public models::RecoveryPolicy {
 public:
  /// The user's plan, with spares in the place of devices that do not live; else fresh().
  std::variant<models::PlanPointer, models::Infeasible> first_plan(
      const std::vector<DeviceId>& live) const final;
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override;
  models::RecoveryDecision on_events(const models::JobState& state,
                                     std::span<const ir::ClusterEvent> events) const final;

 protected:
  /// Copies `input` (not what it refers to).
  ElasticPolicy(const PolicyInput& input, ElasticStalls stalls, std::string checkpoint_interval);

  /// A plan on some of these devices (ascending) without regard to what ran before.
  virtual std::variant<models::PlanPointer, models::Infeasible> fresh(
      const std::vector<DeviceId>& live) const = 0;
  /// `state.plan` does not work on `live` any more: what takes its place, or why nothing can. Then
  /// the job goes on as it would begin on `live` (first_plan()).
  virtual std::variant<ElasticChange, models::Infeasible> shrink(
      const models::JobState& state, const std::vector<DeviceId>& live) const = 0;
  /// Devices came, and `state.plan` works: a plan with them, if that is better.
  virtual std::optional<ElasticChange> grow(const models::JobState& state,
                                            const std::vector<DeviceId>& live) const = 0;
  /// What of the state may be used; `state` itself unless the policy keeps more, or less.
  virtual models::JobState known(const models::JobState& state) const { return state; }
  /// Re-initialization when training goes on with `to` without a roll-back. `planned`: nothing was
  /// lost.
  virtual Stall stall_of(const models::JobState& state, const ir::Plan& to, bool planned) const;
  /// False: devices that have been given notice are used until they are gone.
  virtual bool heeds_notices() const { return true; }

  const PolicyInput& input() const { return input_; }
  const ElasticStalls& stalls() const { return stalls_; }

 private:
  std::variant<models::PlanPointer, models::Infeasible> anew(
      const std::vector<DeviceId>& live) const;
  models::RecoveryDecision go_on(const models::JobState& state, ElasticChange change,
                                 const Happening& what, bool planned) const;
  models::RecoveryDecision after_loss(const models::JobState& state, const Happening& what) const;

  PolicyInput input_;
  ElasticStalls stalls_;
  std::string checkpoint_interval_;
};

}  // namespace orrery::planners
