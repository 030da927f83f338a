/// Makes a trace longer by repeating it.
#pragma once
#include "traces/trace.h"

namespace orrery::traces {

/// How many events repeat() would make, at most.
double repeated_events(const Trace& trace, Nanoseconds horizon);

/// The trace over and over until `horizon`. One nanosecond before each repetition events with cause
/// "repeat" bring back the state of the trace's start (which nodes are present, health of devices,
/// links and job; pending notices are withdrawn); the trace's own events of that last nanosecond
/// are left out. Prices stay until the next one. Aborts if the trace is shorter than a second.
Trace repeat(const Trace& trace, Nanoseconds horizon);

}  // namespace orrery::traces
