/// The pipeline simulator inside Varuna: micro-batches flow through the stages of one pipeline
/// under its opportunistic schedule. [Varuna, EuroSys 2022; public code microsoft/varuna,
/// tools/simulator, whose rules these are]
#pragma once
#include <vector>

#include "models/base/units.h"

namespace orrery::planners {

/// One pipeline, all per micro-batch.
struct VarunaPipeline {
  std::vector<Seconds> forward;    ///< By stage.
  std::vector<Seconds> recompute;  ///< By stage; the last stage never recomputes.
  std::vector<Seconds> backward;   ///< By stage, without recomputation.
  std::vector<Seconds> send;       ///< From stage s to s + 1 and back; one fewer than stages.
  bool recomputes = true;          ///< False: activations are kept, `recompute` is not read.
};

/// Time until the last backward pass ends. A free stage takes, in this order: a backward pass whose
/// gradients are there and whose activations are recomputed (or kept), a recomputation, a forward
/// pass; while recomputed activations wait for their gradients it takes nothing else. A stage may
/// recompute from half of the next stage's backward pass on. Sends are one at a time per stage,
/// activations before gradients, and overlap with computation. Events at equal times are handled
/// in the order in which they were made.
/// Deviation: the public code makes equal times distinct by random offsets below a microsecond.
Seconds simulate_varuna(const VarunaPipeline& pipeline, int micro_batches);

}  // namespace orrery::planners
