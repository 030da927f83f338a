/// How far the ranks' clocks are apart: rank 0 is asked for its time again and again, and the
/// exchange with the shortest way there and back says most. [Cristian 1989]
#pragma once
#include <cstdint>
#include <vector>

#include "executor/net/transport.h"

namespace orrery::executor {

struct ClockEstimate {
  std::int64_t offset_ns = 0;       ///< This clock minus rank 0's.
  std::int64_t uncertainty_ns = 0;  ///< Half of the shortest round trip.
};

/// Nanoseconds of the clock that run logs use: monotonic, of this machine.
std::int64_t now_ns();

/// Nanoseconds of processor time that the calling thread has had.
std::int64_t thread_cpu_ns();

/// All ranks call it at the same point, with the same arguments: rank 0 serves the others one after
/// the other. Uses tags of (step, 0xffffff).
ClockEstimate estimate_clock(Transport& transport, std::uint64_t step, int rounds = 32);

}  // namespace orrery::executor
