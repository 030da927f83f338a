/// A plan in training: iterations and checkpoints from one instant to another, in as many steps as
/// there are checkpoints at most; once checkpoints repeat in a cycle, whole cycles are one step.
/// Private to sim/replay.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "sim/replay/copy_store.h"
#include "sim/replay/ledger.h"

namespace orrery::sim {

/// How iterations are slowed by the copies of checkpoints that are under way.
struct CopyLoad {
  /// By level: so many iterations after its checkpoint take place beside its copy; empty: none.
  std::vector<std::int64_t> iterations;
  /// Of an iteration beside copies of these levels (a bit each, at least one).
  std::function<Nanoseconds(std::uint32_t levels)> time;
};

class TrainingRun {
 public:
  struct Start {
    models::PlanPointer plan;
    PlanDevices devices;
    Instant now;
    std::int64_t done = 0;  ///< Last finished iteration.
    Nanoseconds iteration;
    std::vector<models::CheckpointLevel> levels;
    CopyLoad load;
  };
  /// Keeps references.
  TrainingRun(Start start, ReplayLedger& ledger, CopyStore& copies);

  /// Runs to `until`: what ends then has ended. With `stop`, ends at the first instant from it on
  /// at which no iteration and no checkpoint is under way, and says whether that was reached.
  bool advance(Instant until, std::optional<Instant> stop);
  /// Iterations take so long from now on; of the one in flight, the part that is left scales.
  void retime(Nanoseconds iteration, std::vector<models::CheckpointLevel> levels, CopyLoad load);
  /// Training ends here. The iteration in flight is lost, the checkpoint in progress is booked but
  /// worth nothing.
  void stop(const std::string& cause);
  /// The replay ends here.
  void finish();

  Instant now() const { return now_; }
  std::int64_t done() const { return done_; }
  /// Beside no copy.
  Nanoseconds iteration() const { return iteration_; }
  const models::PlanPointer& plan() const { return plan_; }
  const PlanDevices& devices() const { return devices_; }

 private:
  struct Level {
    models::CheckpointLevel level;
    CopyStore::Slot slot;
    DeviceList holders;
    std::int64_t counted_from;  ///< Due `every` iterations after it.
    std::int64_t loaded_until;  ///< Iterations up to this one are beside its copy.
  };
  enum class Step { none, iteration, checkpoint };
  struct Cycle {
    std::int64_t done;
    Instant at;
    std::vector<std::int64_t> pending;  ///< By level: nanoseconds until persisted, 0: nothing.
    std::vector<std::int64_t> since;    ///< By level: iterations since its last checkpoint.
  };

  void set_levels(std::vector<models::CheckpointLevel> levels, CopyLoad load);
  std::uint32_t loads() const;
  Nanoseconds next_duration();
  void open_run(Nanoseconds duration);
  std::int64_t working() const { return static_cast<std::int64_t>(devices_.working->size()); }
  void begin(Instant until, std::optional<Instant> stop);
  bool begin_checkpoint();
  void jump_cycles(Instant limit);
  void jump_iterations(Instant until, std::optional<Instant> stop);
  void end_step();

  ReplayLedger& ledger_;
  CopyStore& copies_;
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
  CopyLoad load_;
  std::map<std::uint32_t, Nanoseconds> loaded_;  ///< Answers of load_.time.
  Nanoseconds run_duration_;                     ///< Of the iterations of the open run.
  Step step_ = Step::none;
  Instant step_start_, step_end_;
  Instant stall_start_;  ///< Of a checkpoint: when it stops waiting for the one before.
  Level checkpoint_;     ///< In progress.
  std::size_t due_;      ///< Levels before it are done with at this iteration.
  bool odd_ = false;     ///< The iteration in flight has a duration of its own.
};

}  // namespace orrery::sim
