/// How policies answer: what events mean for the running plan, and decisions put together from a
/// plan, sources of state and stalls.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/interfaces/recovery_policy.h"
#include "planners/recovery/kit/phases.h"
#include "planners/recovery/kit/replan.h"
#include "planners/recovery/kit/restore.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// Events, as far as policies look at them.
struct EventSummary {
  bool capacity = false;  ///< Devices joined or came back.
  bool job = false;       ///< The job itself failed: all GPU memory is lost.
  bool failure = false;   ///< Something was lost, or the job failed.
  bool lost = false;      ///< Devices failed or left.
  bool failed = false;    ///< Devices failed without anybody saying so; a preemption is said.
  /// The longest that the trace says for a failure; none: the policy's own default.
  std::optional<Nanoseconds> detection;
};
EventSummary summarize(std::span<const ir::ClusterEvent> events);

/// When the first of the plan's working devices leaves as announced.
std::optional<Instant> deadline_of(const models::JobState& state);

/// `state`, where replicas in GPU memory have lost the shards of devices that are gone and of
/// stages that compute nothing. Layouts are without Redundancy::next_stage: a policy that counts on
/// the copies of shadows adds them as replicas of their own.
models::JobState with_losses(const models::JobState& state);

struct Resumption {
  models::PlanPointer plan;
  std::vector<StateSource> order;  ///< Where the plan's state may come from, best first.
  /// The running plan keeps training to the end of its iteration, if it can.
  bool planned = false;
  Stall detect;
  Stall decide;
  Seconds preparation = {};  ///< Of a planned change, beside training: new nodes start.
  Stall reinitialize;
  std::string reason;
};

/// Resumes from the newest state that the plan can be given completely, or from the beginning when
/// there is none.
models::RecoveryDecision resume(const PolicyInput& input, const models::JobState& state,
                                const Resumption& resumption);

models::RecoveryDecision proceed(std::string reason);
models::RecoveryDecision wait(std::string reason);
models::RecoveryDecision wait(const models::Infeasible& why);

/// A planned change, carried out as late as it fits before the deadline; else the devices work
/// until they leave, and the newest checkpoint counts.
models::RecoveryDecision before_deadline(const PolicyInput& input, const models::JobState& state,
                                         Instant deadline, models::RecoveryDecision change);

/// Whether a change that stops training for `stall` makes more iterations within `horizon` than
/// going on: (horizon - stall) / after > horizon / before. The rule is ours.
bool growth_is_profitable(Seconds before, Seconds after, Seconds stall, Seconds horizon);

/// The detection time that the trace says, else the policy's own; none for an announced loss.
Stall detection(const EventSummary& what, const models::JobState& state, const Phases& own);

/// A recovery was bringing the plan up: all of the plan's devices are alive even without those that
/// came just now, so that the job was not waiting for any.
bool was_recovering(const models::JobState& state, std::span<const ir::ClusterEvent> events,
                    const models::Cluster& cluster);

/// A pending switch is not replaced when devices come: its devices are alive, and `decide` has
/// passed since it was first asked for, so that devices that keep coming cannot put it off for
/// ever. What came meanwhile waits for the next event.
bool keeps_pending(const models::JobState& state, Seconds decide);

}  // namespace orrery::planners
