/// The checkpoints that a plan writes while it trains, and how much their background transfers slow
/// its iterations. Private to sim/replay.
///
/// A background transfer lasts a whole number of iterations, as many as its time takes at their
/// usual speed but at most all until the level's next checkpoint; its bytes are spread evenly over
/// them.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "models/interfaces/recovery_policy.h"
#include "sim/replay/iteration_timer.h"

namespace orrery::sim {

struct CheckpointSchedule {
  std::vector<models::CheckpointLevel> levels;  ///< Without their background transfers.
  /// By level: how many iterations after a checkpoint overlap with its transfers. Empty: none.
  std::vector<std::int64_t> background_iterations;
  /// The time of an iteration that overlaps with the transfers of these levels (a bit each, at
  /// least one).
  std::function<Nanoseconds(std::uint32_t levels)> time_with_background;
};

/// `time`: that of an iteration under `conditions`, which have no background transfers. With a null
/// `timer` background transfers slow nothing. Keeps a reference to it.
CheckpointSchedule schedule_checkpoints(std::vector<models::CheckpointLevel> levels,
                                        const models::PlanPointer& plan, Seconds time,
                                        IterationConditions conditions,
                                        const IterationTimer* timer);

}  // namespace orrery::sim
