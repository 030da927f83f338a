/// Sequences to micro-batches: packing into windows, and balancing over pipelines.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "models/lower/micro_batch_lengths.h"
#include "planners/mixed_length/strategy.h"

namespace orrery::planners {

/// First-fit decreasing: longest first, each into the first window that has room; a sequence longer
/// than the window is cut to it. Returns the lengths in each window, none of them empty.
/// [Johnson 1973; at most 11/9 of the fewest windows + 6/9, Dosa 2007]
std::vector<std::vector<std::int64_t>> pack_windows(std::span<const std::int64_t> lengths,
                                                    std::int64_t window);

/// Time from the first forward to the last backward pass of a pipeline that works off sequences in
/// this order: 1F1B with free transfers. A pass starts when the stage's pass before it and its own
/// on the neighboring stage have ended. With one stage the sum of its times, with equal lengths
/// and stages models::pipeline_time. Sequences of 0 tokens take no time.
Seconds pipeline_load(const PreparedStrategy& strategy, int pipeline,
                      std::span<const std::int64_t> lengths);

/// Distributes sequences over the pipelines of a strategy so that the slowest one ends early:
/// longest first, each to the pipeline that then ends first among those that hold it, then
/// single moves and swaps out of the slowest pipeline while they help. A pipeline without sequences
/// gets one empty micro-batch. No sequence may be longer than the largest limit (aborts otherwise).
/// A heuristic: the problem is scheduling on unrelated machines.
models::MicroBatchLengths balance(const PreparedStrategy& strategy,
                                  std::span<const std::int64_t> lengths);

/// Largest pipeline_load of an assignment.
Seconds longest_load(const PreparedStrategy& strategy, const models::MicroBatchLengths& lengths);

}  // namespace orrery::planners
