/// Recovery policies: what to do when devices vanish, appear or run slowly. A policy is asked at
/// each event and answers with a value; replay (sim/replay) carries it out and accounts for the
/// time.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "models/base/ids.h"
#include "models/base/time.h"
#include "models/base/units.h"
#include "models/interfaces/evaluator.h"
#include "models/interfaces/transfer_timer.h"
#include "models/ir/cluster_event.h"
#include "models/ir/plan.h"
#include "models/ir/program.h"

namespace orrery::models {

using PlanPointer = std::shared_ptr<const ir::Plan>;

/// One replica of the whole model state (parameters, master weights, moments) after an iteration,
/// sharded as a plan shards it: device i of devices_of(*layout) wrote the i-th shard.
struct StateReplica {
  std::int64_t iteration = 0;
  ir::Location location = ir::Location::peer;  ///< peer: GPU memory.
  PlanPointer layout;
  /// By position in devices_of(*layout): the device that keeps the shard (for host memory and NVMe:
  /// the shard is on that device's node). Empty: each device keeps its own. Ignored for the cloud.
  std::vector<DeviceId> stored_on;
  /// Positions whose shard this replica has lost, ascending.
  std::vector<std::uint32_t> lost_shards;
};

/// A device that runs at `factor` of its speed.
struct SlowDevice {
  DeviceId device;
  double factor = 1.0;
  auto operator<=>(const SlowDevice&) const = default;
};

/// A device that has been given notice.
struct LeavingDevice {
  DeviceId device;
  Instant at;
  auto operator<=>(const LeavingDevice&) const = default;
};

/// A switch that the policy has asked for; training continues until it begins.
struct PendingSwitch {
  PlanPointer plan;
  Instant asked;  ///< If it replaced other pending switches: when the first of them was asked for.
  Instant at;     ///< It begins at the end of the iteration that is in flight then.
};

/// What a policy may know when it decides: the state right after the events.
struct JobState {
  Instant now;
  std::int64_t iteration = 0;  ///< Last finished one; 0: none yet.
  PlanPointer plan;       ///< That was running, or that a recovery was bringing up; may be null.
  bool training = false;  ///< False while waiting or recovering.
  std::vector<DeviceId> live;          ///< Ascending; leaving and slow ones too.
  std::vector<LeavingDevice> leaving;  ///< Ascending; live ones only.
  std::vector<SlowDevice> slow;        ///< Ascending; live ones only.
  /// Newest iteration first, then in the order of Location. The replica in GPU memory is that of
  /// the last finished iteration, or of what the running recovery had completed.
  std::vector<StateReplica> replicas;
  Seconds iteration_time;                ///< Of `plan` before the events; 0 unless it trains.
  std::optional<PendingSwitch> pending;  ///< Not if these events have broken it.
  bool announced = false;  ///< Devices were lost, all of them to a notice that had run out.
  PlanPointer first;       ///< The plan that the job began to train with; null: it never has.
};

/// A part of the stall. Phases follow one another.
struct RecoveryPhase {
  enum class Kind {
    detect,
    decide,
    move_state,  ///< The decision's transfers, then `duration` (splitting, concatenating, loading).
    reinitialize,
    warm_up,  ///< Accounted as reinitialize.
  };
  Kind kind = Kind::detect;
  Nanoseconds duration;
  std::string source;  ///< Where the duration comes from: paper and section, trace, option.
};

struct RecoveryDecision {
  enum class Action {
    proceed,  ///< Training, or a recovery that was not hit, goes on; its devices all live.
    wait,     ///< No plan for what lives: idle until the next event.
    resume,   ///< Go on with `plan` after the phases.
  };
  Action action = Action::proceed;
  /// ir::working_devices(*plan) live. Others of the plan, whose stages leave all of their
  /// micro-batches to other pipelines, need not: their shards of the state count as lost.
  PlanPointer plan;
  /// Training goes on from the state after this iteration; what came later is rolled back.
  std::int64_t resume_iteration = 0;
  /// The old plan keeps training for this long, and to the end of the iteration then in flight,
  /// before the phases start: for preparation during training and planned changes. Training then
  /// resumes from the last finished iteration, whatever `resume_iteration` says. An event that
  /// kills one of the old plan's devices meanwhile cancels the switch. Negative: stop now; the
  /// iteration in flight is lost.
  Nanoseconds run_on{-1};
  std::vector<RecoveryPhase> phases;     ///< At most one move_state.
  std::vector<StateTransfer> transfers;  ///< None without a move_state phase.
  std::string reason;                    ///< In words, for logs and tables.
};

/// What a policy writes while training runs. A checkpoint is taken `every` iterations after the
/// level's last one (even if another plan wrote that one) or after a rollback to before it:
/// training stops for `stall`; the checkpoint is usable `persist` after the stall began. A
/// checkpoint that is due before the previous one is persisted stalls until it is.
struct CheckpointLevel {
  ir::Location location = ir::Location::cloud;
  std::int64_t every = 1;
  Nanoseconds stall;
  Nanoseconds persist;
  std::vector<DeviceId> stored_on;  ///< As StateReplica.
  std::string source;               ///< Where the figures come from.
  /// Transfers that overlap with training, from the end of the stall until the checkpoint is
  /// usable.
  std::vector<StateTransfer> background;
};

/// Replay asks a policy at the start, and whenever something happens. All functions depend on their
/// arguments only (caches inside are allowed); no clock, no randomness.
class RecoveryPolicy {
 public:
  virtual ~RecoveryPolicy() = default;
  virtual std::string name() const = 0;
  /// The plan to begin with on these devices (ascending), or why there is none: then the job waits.
  virtual std::variant<PlanPointer, Infeasible> first_plan(
      const std::vector<DeviceId>& live) const = 0;
  /// Levels of checkpoints while `plan` runs with this iteration time; empty: none.
  virtual std::vector<CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const = 0;
  /// `events` happened at the same instant, in trace order, and are already in `state`.
  virtual RecoveryDecision on_events(const JobState& state,
                                     std::span<const ir::ClusterEvent> events) const = 0;
  /// True: on_events() is asked once more when a recovery has ended, without events, so that the
  /// policy can prepare something beside training: spares that it does not wait for.
  virtual bool asks_after_recovery() const { return false; }
};

}  // namespace orrery::models
