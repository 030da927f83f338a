/// Iteration time in closed form, as the papers write it: a stage is a number of seconds, a
/// pipeline a list of stages. Functions of times alone; where the times come from is up to the
/// caller. What they leave out (contention, overlap, unequal forward and backward orders) is what
/// the simulator is for. The closed form of each schedule is ScheduleEntry::pipeline_time.
#pragma once
#include <span>
#include <vector>

#include "models/base/units.h"
#include "models/schedule/schedule.h"

namespace orrery::models {

/// Synchronous pipeline whose stage j takes stages[j] per micro-batch, forward, backward and
/// communication of that stage together: sum of t + (m - 1) max t. No stages: 0.
/// [HexiScale, Eq. 9; AutoHet, Eq. 1 inside the brackets; Metis, Eq. 1; PipeDream-flush]
/// Deviation: HexiScale prints the maximum over stages 2 to D, which would forget the first one.
Seconds pipeline_time(std::span<const Seconds> stages, int micro_batches);

/// Sum over the m + p - 1 columns of a GPipe chart of the longest stage that is active in it:
/// stages move in lock step. At least pipeline_time's rate, equal for equal stages.
/// [HexiScale, public code]
Seconds lock_step_time(std::span<const Seconds> stages, int micro_batches);

/// Iteration: slowest pipeline, then gradient synchronization.
/// [HexiScale, Eq. 10; AutoHet, Eq. 1; Metis, Eq. 1 with DP_all]
Seconds iteration_time(std::span<const Seconds> pipelines, Seconds synchronization);

/// Forward and backward pass of each stage together.
std::vector<Seconds> both_passes(std::span<const StageTime> stages);

}  // namespace orrery::models
