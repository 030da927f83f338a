/// A plan in training: iterations and checkpoints from one instant to another, in at most as many
/// steps as there are checkpoints; once checkpoints repeat in a cycle, whole cycles are one step.
/// Private to sim/replay.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "sim/replay/checkpoint_schedule.h"
#include "sim/replay/ledger.h"
#include "sim/replay/replica_store.h"

namespace orrery::sim {

class TrainingRun {
 public:
  struct Start {
    models::PlanPointer plan;
    PlanDevices devices;
    Instant now;
    std::int64_t done = 0;  ///< Last finished iteration.
    Nanoseconds iteration;
    CheckpointSchedule checkpoints;
  };
  /// Keeps references.
  TrainingRun(Start start, ReplayLedger& ledger, ReplicaStore& replicas);

  /// Runs to `until`; what ends at that instant has ended. With `stop`, ends at the first instant
  /// from `stop` on at which no iteration or checkpoint is in progress, and returns whether that
  /// was reached.
  bool advance(Instant until, std::optional<Instant> stop);
  /// Iterations take this long from now on; what is left of the one in flight scales accordingly.
  void retime(Nanoseconds iteration, CheckpointSchedule checkpoints);
  /// Training ends here. The iteration in flight is lost; the checkpoint in progress is accounted
  /// for but worth nothing.
  void stop(const std::string& cause);
  /// The replay ends here.
  void finish();

  Instant now() const { return now_; }
  /// Of the iteration or checkpoint in progress; now() where there is none.
  Instant activity_end() const { return activity_ == Activity::none ? now_ : end_; }
  std::int64_t done() const { return done_; }
  /// Without background transfers.
  Nanoseconds iteration() const { return iteration_; }
  const models::PlanPointer& plan() const { return plan_; }
  const PlanDevices& devices() const { return devices_; }

 private:
  struct Level {
    models::CheckpointLevel level;
    ReplicaStore::Slot slot;
    DeviceList stored_on;
    std::int64_t counted_from;      ///< Due `every` iterations after it.
    std::int64_t background_until;  ///< Iterations up to this one overlap with its transfers.
  };
  enum class Activity { none, iteration, checkpoint };
  struct Cycle {
    std::int64_t done;
    Instant at;
    std::vector<std::int64_t> pending;  ///< By level: nanoseconds until persisted, 0: nothing.
    std::vector<std::int64_t> since;    ///< By level: iterations since its last checkpoint.
  };

  void set_checkpoints(CheckpointSchedule checkpoints);
  std::uint32_t background_levels() const;
  Nanoseconds next_duration();
  void open_run(Nanoseconds duration);
  void begin(Instant until, std::optional<Instant> stop);
  bool begin_checkpoint();
  void jump_cycles(Instant limit);
  void jump_iterations(Instant until, std::optional<Instant> stop);
  void end_activity();

  ReplayLedger& ledger_;
  ReplicaStore& replicas_;
  models::PlanPointer plan_;
  PlanDevices devices_;
  std::int64_t samples_;
  std::vector<Level> levels_;
  std::size_t longest_ = 0;        ///< The level with the most iterations between checkpoints.
  std::int64_t cycle_length_ = 0;  ///< Iterations; 0: too long to look for cycles.
  std::optional<Cycle> cycle_;     ///< Where the last one ended, at a checkpoint of that level.
  Instant now_;
  std::int64_t done_;
  Nanoseconds iteration_;
  std::vector<std::int64_t> background_iterations_;  ///< As in CheckpointSchedule, as the next.
  std::function<Nanoseconds(std::uint32_t)> time_with_background_;
  std::map<std::uint32_t, Nanoseconds> background_times_;  ///< Its answers.
  Nanoseconds run_duration_;                               ///< Of the iterations of the open run.
  Activity activity_ = Activity::none;
  Instant start_, end_;  ///< Of the activity.
  Nanoseconds whole_;  ///< What the iteration in flight would take from end to end as it goes now.
  Instant stall_start_;   ///< Of a checkpoint: when it stops waiting for the one before.
  Level checkpoint_;      ///< In progress.
  std::size_t due_;       ///< Levels before it are done with at this iteration.
  bool retimed_ = false;  ///< The iteration in flight has a duration of its own.
};

}  // namespace orrery::sim
