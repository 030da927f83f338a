/// The run log: what happened when, op by op. The simulator and the executor write the same, so
/// that a comparison is a join by op.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/time.h"
#include "models/base/units.h"
#include "models/ir/program.h"

namespace orrery::ir {

/// One op of one iteration. A compute op with inner collectives also says how much of it was spent
/// in them.
struct Span {
  RankId rank;
  OpId op;
  Instant start;
  Instant end;
  Nanoseconds inner;         ///< Part of [start, end) spent in inner collectives.
  Bytes bytes;               ///< Moved by this rank, inner collectives included.
  Nanoseconds gathers = {};  ///< Part of `inner` that gathered sharded parameters (ZeRO-3).
  auto operator<=>(const Span&) const = default;
};

struct IterationMark {
  std::int64_t iteration = 0;
  Instant start;
  Instant end;
  auto operator<=>(const IterationMark&) const = default;
};

/// Memory of a rank's device after the change at `at`.
struct MemorySample {
  RankId rank;
  Instant at;
  Bytes allocated;
  auto operator<=>(const MemorySample&) const = default;
};

/// Bytes that crossed a link of the cluster in one direction, and its capacity.
struct LinkUse {
  std::string link;
  BytesPerSecond capacity;
  Bytes bytes;
  auto operator<=>(const LinkUse&) const = default;
};

/// Anything else worth a mark: a failure, a plan switch, a checkpoint.
struct LogEvent {
  Instant at;
  std::string kind;
  std::string detail;
  auto operator<=>(const LogEvent&) const = default;
};

/// Difference of a rank's clock to rank 0's; zero with zero uncertainty in a simulation.
struct ClockOffset {
  RankId rank;
  Nanoseconds offset;
  Nanoseconds uncertainty;
  auto operator<=>(const ClockOffset&) const = default;
};

struct RunLog {
  int schema = 1;
  std::string program_hash;
  std::string source;  ///< "simulator" or "executor".
  std::int32_t generation = 0;
  std::vector<Span> spans;  ///< By rank, then by op.
  std::vector<IterationMark> iterations;
  std::vector<MemorySample> memory;
  std::vector<LinkUse> links;
  std::vector<LogEvent> events;
  std::vector<ClockOffset> clocks;
};

}  // namespace orrery::ir
