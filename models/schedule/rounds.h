/// Rounds of gradient synchronization inside an optimizer step: where replicas stop accumulating
/// gradients to add them up between each other. One round, after the last micro-batch, is gradient
/// accumulation; more of them is data parallelism that accumulates less, or not at all.
#pragma once
#include "models/ir/plan.h"

namespace orrery::models {

/// Most rounds that a plan can have: micro-batches of the pipeline with the fewest. An interleaved
/// pipeline completes the gradients of all its chunks only after a whole group of as many
/// micro-batches as it has stages, so its groups count.
int most_rounds(const ir::Plan& plan);

/// Rounds of the plan when `asked` are wanted, at most most_rounds(); 0: as many as it can have.
int gradient_rounds(const ir::Plan& plan, int asked);

/// Micro-batches of the pipeline up to the end of `round` (from 0) of `rounds`: ceil((round + 1) m
/// / rounds) of m, in whole groups where the schedule is interleaved. Grows from round to round,
/// and is m after the last one. `rounds` is at most most_rounds().
int round_end(const ir::Plan& plan, const ir::Pipeline& pipeline, int round, int rounds);

}  // namespace orrery::models
