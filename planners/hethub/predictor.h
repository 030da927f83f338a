/// HetHub's performance predictor: iteration time of a pipeline under 1F1B, stage by stage and
/// micro-batch by micro-batch, from forward and backward times, hops that overlap with computation,
/// and the update of each stage. [HetHub, sections 3.2 and 4.2.1]
///
/// The paper prints no formula; it says that forward, backward, parameter update and communication
/// are simulated in the order of PipeDream's 1F1B, and builds on the order of the stages (slowest
/// first), on which closed forms of the kind sum + (m - 1) max do not depend.
#pragma once
#include <span>

#include "models/base/units.h"

namespace orrery::planners {

/// A stage as the predictor sees it; times of one micro-batch.
struct PredictedStage {
  Seconds forward;
  Seconds backward;
  Seconds forward_hop;   ///< To the next stage; not read of the last.
  Seconds backward_hop;  ///< From the next stage back to this one; not read of the last.
  Seconds update;        ///< Gradient all-reduce and optimizer step, once per iteration.
};

/// Time of `micro_batches` >= 1 micro-batches. Stage s computes min(m, S - 1 - s) forward passes,
/// then one forward and one backward in turn, then the remaining backward passes, each as soon as
/// its input is there. A hop starts when its tensor is ready and the hop before it in the same
/// direction is over; it does not hold up computation. A stage updates after its last backward
/// pass; the iteration ends with the last update. Time O(stages * micro_batches).
Seconds predict_iteration(std::span<const PredictedStage> stages, int micro_batches);

/// At most predict_iteration: each stage waits for the first micro-batch, computes all of them and
/// the last backward pass travels back to the first stage. Time O(stages).
Seconds predict_at_least(std::span<const PredictedStage> stages, int micro_batches);

}  // namespace orrery::planners
