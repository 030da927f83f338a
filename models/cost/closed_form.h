/// Iteration time in closed form, as the papers write it: a stage is a number of seconds, a
/// pipeline a list of stages. Functions of times alone; where the times come from is up to the
/// caller. What they leave out (contention, overlap, unequal forward and backward orders) is what
/// the simulator is for.
#pragma once
#include <span>

#include "models/base/units.h"

namespace orrery::models {

/// Synchronous pipeline whose stage j takes stages[j] per micro-batch, forward, backward and
/// communication of that stage together: sum of t + (m - 1) max t. No stages: 0.
/// [HexiScale, Eq. 9; AutoHet, Eq. 1 inside the brackets; Metis, Eq. 1; PipeDream-flush]
/// Deviation: HexiScale prints the maximum over stages 2 to D, which would forget the first one.
Seconds pipeline_time(std::span<const Seconds> stages, int micro_batches);

/// As pipeline_time with the cuts between stages (one fewer than stages) beside the stages: they
/// are paid once and do not bound the rate. [AMP, Li et al. 2022, Eq. 3]
Seconds pipeline_time_with_cuts(std::span<const Seconds> stages, std::span<const Seconds> cuts,
                                int micro_batches);

/// GPipe: all forward passes, then all backward passes, each a flow shop of equal jobs, which is
/// exact for free communication: sum(f + b) + (m - 1)(max f + max b). [Huang et al. 2019, 2.3]
Seconds gpipe_time(std::span<const Seconds> forward, std::span<const Seconds> backward,
                   int micro_batches);

/// Interleaved 1F1B with `chunks` virtual stages, stages[j] over all of stage j's chunks: the fill
/// is divided by the chunks, max t m + (sum of t - max t) / chunks. Exact for equal stages and free
/// communication. [Narayanan et al. 2021, 2.2.2]
Seconds interleaved_time(std::span<const Seconds> stages, int micro_batches, int chunks);

/// ZB-H1: max t m + sum over the other stages of (forward + input - weights), where weights count
/// at most as much as the forward pass. Exact for equal stages with weights <= forward.
/// [Qi et al. 2024, Table 2: bubble (p - 1)(T_F + T_B - T_W)]
Seconds zero_bubble_time(std::span<const Seconds> forward, std::span<const Seconds> input,
                         std::span<const Seconds> weights, int micro_batches);

/// Sum over the m + p - 1 columns of a GPipe chart of the longest stage that is active in it:
/// stages move in lock step. At least pipeline_time's rate, equal for equal stages.
/// [HexiScale, public code]
Seconds lock_step_time(std::span<const Seconds> stages, int micro_batches);

/// Iteration: slowest pipeline, then gradient synchronization.
/// [HexiScale, Eq. 10; AutoHet, Eq. 1; Metis, Eq. 1 with DP_all]
Seconds iteration_time(std::span<const Seconds> pipelines, Seconds synchronization);

/// Idle time over ideal time of p equal stages: (p - 1) / (m v), v chunks per stage (1: GPipe and
/// 1F1B). [Narayanan et al. 2021, 2.2.1 and 2.2.2]
double bubble_over_ideal(int stages, int micro_batches, int virtual_stages = 1);

/// Idle share of the pipeline's time: (p - 1) / (m + p - 1). [Huang et al. 2019, 2.3]
double bubble_share(int stages, int micro_batches);

}  // namespace orrery::models
