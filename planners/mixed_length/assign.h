/// Sequences to micro-batches: packing into windows, and balancing over pipelines.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/base/check.h"
#include "models/base/units.h"
#include "models/lower/micro_batch_lengths.h"
#include "planners/mixed_length/prepared_strategy.h"

namespace orrery::planners {

/// First-fit decreasing: longest first, each into the first window that has room; a sequence longer
/// than the window is cut to it. Returns the lengths in each window, none of them empty.
/// [Johnson 1973; at most 11/9 of the fewest windows + 6/9, Dosa 2007]
std::vector<std::vector<std::int64_t>> pack_windows(std::span<const std::int64_t> lengths,
                                                    std::int64_t window);

/// Both passes of a sequence on a pipeline.
struct SequenceTime {
  Seconds slowest;  ///< On the slowest stage.
  Seconds rest;     ///< On all others.
};
SequenceTime sequence_time(const PreparedStrategy& strategy, int pipeline, std::int64_t length);

/// List scheduling: each length, descending, goes to the pipeline that then ends first among those
/// whose limit(pipeline) holds it; a pipeline ends after its sequences on the slowest stage and the
/// largest rest. place(pipeline, length) is called for each. Returns when the last pipeline ends.
/// Aborts where no pipeline holds a length.
template <class Limit, class Time, class Place>
Seconds spread_longest_first(std::size_t pipelines, std::span<const std::int64_t> lengths,
                             const Limit& limit, const Time& time, const Place& place) {
  std::vector<SequenceTime> loads(pipelines);
  Seconds longest;
  for (const std::int64_t length : lengths) {
    std::size_t best = pipelines;
    Seconds best_end;
    for (std::size_t p = 0; p < pipelines; ++p) {
      if (length > limit(p)) continue;
      const SequenceTime& one = time(p, length);
      const Seconds end = loads[p].slowest + one.slowest + std::max(loads[p].rest, one.rest);
      if (best < pipelines && end >= best_end) continue;
      best = p;
      best_end = end;
    }
    ORRERY_CHECK(best < pipelines, "no pipeline holds {} tokens", length);
    const SequenceTime& one = time(best, length);
    loads[best] = {loads[best].slowest + one.slowest, std::max(loads[best].rest, one.rest)};
    longest = std::max(longest, best_end);
    place(best, length);
  }
  return longest;
}

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
