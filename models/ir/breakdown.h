/// Where the time of an iteration goes, rank by rank, in whole nanoseconds: one function for logs
/// of the simulator and of the executor, so that their parts mean the same.
#pragma once
#include <span>

#include "models/base/time.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"

namespace orrery::ir {

/// Seven parts of the timeline of a rank that are disjoint and cover the iteration: each is
/// measured on its own, as a set of points in time, and none is a remainder.
struct RankBreakdown {
  /// Forward and backward ops without their inner collectives; kernels of a recorded run.
  Nanoseconds compute;
  /// Inner collectives but gathers, with the wait for the slowest of the op group.
  Nanoseconds tensor_parallel;
  Nanoseconds zero;  ///< Inner collectives that gather sharded parameters (ZeRO-3).
  /// No op of the compute stream runs, but a point-to-point op or an activation broadcast of this
  /// rank (purpose pipeline) does. A transfer runs from when both sides may start, so that waiting
  /// for the other side's compute is not in here.
  Nanoseconds pipeline;
  /// Neither of the above, but another communication op of this rank runs: gradient
  /// synchronization, gathers after the optimizer step (ZeRO-1 and 2), state moves.
  Nanoseconds data_parallel;
  Nanoseconds optimizer;  ///< Optimizer steps, and state ops on the compute stream.
  /// No op of this rank runs but host ops: between two of them, before and after all.
  Nanoseconds bubble;
  Nanoseconds total() const;
};

/// `spans` are those of all ops of one rank, in the order of the program. Checks that the parts add
/// up to `iteration`.
RankBreakdown rank_breakdown(const ir::Program& program, std::span<const ir::Span> spans,
                             Nanoseconds iteration);

}  // namespace orrery::ir
