/// A stretch of a trace as a trace of its own.
#pragma once
#include "models/base/time.h"
#include "traces/trace.h"

namespace orrery::traces {

/// What happens from `start` until `horizon` later, both inside the trace; times count from
/// `start`. Events at time 0 with cause "window" bring about the state at `start`: who is absent,
/// what is slow, prices, and notices with what is left of their time.
Trace window(const Trace& trace, Instant start, Nanoseconds horizon);

}  // namespace orrery::traces
