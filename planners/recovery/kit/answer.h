/// What policies that resume on the surviving state have in common: what the events mean for the
/// running plan, and a decision put together from a plan, sources of state and stalls.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/interfaces/recovery_policy.h"
#include "planners/recovery/kit/phases.h"
#include "planners/recovery/kit/restore.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// Events, as far as policies look at them.
struct Happening {
  bool capacity = false;  ///< Devices joined or came back.
  bool notice = false;    ///< Devices will leave.
  bool job = false;       ///< The job itself failed: all GPU memory is lost.
  bool failure = false;   ///< Something was lost, or the job failed.
  bool lost = false;      ///< Devices failed or left.
  bool failed = false;    ///< Devices failed: nobody says so, as somebody does who takes them.
  /// The longest that the trace says for a failure; none: the policy's own default.
  std::optional<Nanoseconds> detection;
};
Happening happening(std::span<const ir::ClusterEvent> events);

/// `state.live` without the devices that have been given notice.
std::vector<DeviceId> staying(const models::JobState& state);

/// When the first of the plan's working devices leaves as announced.
std::optional<Instant> deadline_of(const models::JobState& state);

/// True when all devices that compute in the plan (ir::working_devices) are in `live` (ascending).
bool works_on(const ir::Plan& plan, const std::vector<DeviceId>& live);

/// `state`, where copies in GPU memory lack the shares of devices that are gone and of stages that
/// compute nothing. Layouts are without Redundancy::next_stage: its copies, where a policy counts
/// on them, are copies of their own.
models::JobState with_gaps(const models::JobState& state);

struct Resumption {
  models::PlanPointer plan;
  std::vector<StateSource> order;  ///< Where the plan's state may come from, best first.
  /// The plan that runs goes on to the end of its iteration, if it can.
  bool planned = false;
  Stall detect;
  Stall decide;
  Stall reinitialize;
  std::string reason;
};

/// Resumes from the newest state that the plan can be given completely, or from the beginning when
/// there is none.
models::RecoveryDecision resume(const PolicyInput& input, const models::JobState& state,
                                const Resumption& resumption);

models::RecoveryDecision proceed(std::string reason);
models::RecoveryDecision wait(std::string reason);

/// The detection that the trace says, else the policy's own: nothing of a loss that had been
/// announced.
Stall detection(const Happening& what, const models::JobState& state, const Phases& own);

/// A recovery was bringing the plan up: without the devices that came just now all of the plan's
/// live, so that the job was not waiting for any.
bool was_recovering(const models::JobState& state, std::span<const ir::ClusterEvent> events,
                    const models::Cluster& cluster);

/// A switch that training runs on to is let go on when devices come: its devices live, and `decide`
/// has passed since it was first asked for, so that devices that keep coming cannot put it off for
/// ever. What came meanwhile waits for the next event.
bool keeps_pending(const models::JobState& state, Seconds decide);

/// Weights, master copy and moments of the job.
models::ReshardBytes state_bytes(const PolicyInput& input);

/// Option `checkpoint_interval` of policies that keep a checkpoint in the cloud beside their own
/// way to recover: "never", or as iterations_between(). Training stops for the snapshot to host
/// memory, which is then persisted. Empty if never, or if the cluster has no object storage.
std::vector<models::CheckpointLevel> cloud_checkpoint(const PolicyInput& input,
                                                      const std::string& interval,
                                                      const ir::Plan& plan, Seconds restart,
                                                      Seconds iteration_time);
/// What is wrong with a value of that option; empty if nothing.
std::string checkpoint_interval_problem(const std::string& interval);

}  // namespace orrery::planners
