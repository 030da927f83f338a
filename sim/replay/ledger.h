/// Where each nanosecond of wall time went: entries follow one another without a gap, and every
/// bucket is added up on its own rather than being what the others leave over. Private to
/// sim/replay.
///
/// Training is entered in runs: iterations of one duration with the checkpoints between them. A run
/// knows how many of its iterations still count, so that rolling back costs as much as there are
/// runs to cut, whatever the number of iterations.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "models/base/time.h"
#include "sim/replay/replay.h"

namespace orrery::sim {

/// Device-nanoseconds: 16,384 devices x 54 days do not fit into 64 bits.
__extension__ using WideCount = __int128;

class ReplayLedger {
 public:
  /// Iterations are productive up to this duration and degraded beyond it. To be set before
  /// anything is read.
  void set_reference(Nanoseconds reference) { reference_ = reference; }

  /// From `start` on each iteration takes `duration`, `background` of it because of transfers
  /// beside training, and trains `samples`; `first` is the next one.
  void open_run(Instant start, std::int64_t first, Nanoseconds duration, std::int64_t devices,
                std::int64_t samples, Nanoseconds background = {});
  void add_iterations(std::int64_t count);
  void add_checkpoint(Nanoseconds duration);
  /// Aborts if iterations and checkpoints do not reach exactly to `end`.
  void close_run(Instant end);

  /// One stretch in one bucket; `devices` are in the plan then.
  void add(Bucket bucket, Instant start, Instant end, std::int64_t devices, std::string what,
           std::int64_t iteration = 0);
  /// An iteration that the end of the replay cuts off: not lost, not counted.
  void add_unfinished(Instant start, Instant end, std::int64_t devices, std::int64_t iteration);
  /// Iterations after `iteration` do not count any more; returns how many these were. No run open.
  std::int64_t roll_back(std::int64_t iteration, const std::string& cause);

  /// Sums, samples and, if asked for, spans; aborts unless entries cover [0, horizon].
  void fill(ReplayResult& result, bool spans) const;
  /// Device-nanoseconds in the plan, by bucket.
  std::array<WideCount, kBuckets> in_plan() const;

 private:
  struct Entry {
    bool run = false;
    Bucket bucket = Bucket::idle;  ///< Of a stretch.
    Instant start, end;
    std::int64_t devices = 0;
    std::int64_t first = 0;    ///< First iteration.
    std::int64_t counted = 0;  ///< Iterations of a run that count; the lost ones come after them.
    std::int64_t lost = 0;
    Nanoseconds duration;    ///< Of one iteration.
    Nanoseconds background;  ///< Part of it.
    Nanoseconds checkpoint;  ///< In all.
    std::int64_t samples = 0;
    std::string what;
  };
  struct Piece {
    Bucket bucket;
    Nanoseconds duration;
    std::int64_t first = 0, iterations = 0;
  };
  std::vector<Piece> pieces(const Entry& entry) const;
  void append(Entry entry);

  std::vector<Entry> entries_;
  std::vector<std::size_t> counting_;  ///< Runs with iterations that count, in order of iterations.
  Entry open_;
  bool is_open_ = false;
  Nanoseconds reference_;
};

}  // namespace orrery::sim
