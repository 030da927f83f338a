/// The memory of each rank over an iteration, from the buffer effects of its compute stream.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "models/base/units.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"

namespace orrery::sim {

class MemoryTimeline {
 public:
  explicit MemoryTimeline(const ir::Program& program);

  /// At least the number of samples that replaying all ranks appends.
  std::size_t max_samples() const;
  /// Replays one rank: resident buffers, then the ops of its compute stream. An op allocates when
  /// it starts, its transient buffers included, and frees when it ends; at one instant frees come
  /// first. The iteration begins at `begin`; `spans` are those of all ops of the rank, in the order
  /// of the program. Returns the peak per device. Appends a sample for each instant of a change to
  /// `samples` unless it is null.
  Bytes replay(RankId rank, Instant begin, std::span<const ir::Span> spans,
               std::vector<ir::MemorySample>* samples) const;

 private:
  struct Change {
    Bytes at_start;
    Bytes at_end;  ///< Negative or zero.
  };
  const ir::Program& program_;
  std::vector<Change> changes_;  ///< By buffer set.
};

}  // namespace orrery::sim
