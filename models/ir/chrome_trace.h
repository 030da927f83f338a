/// A run's timeline as Chrome trace JSON (chrome://tracing, and every tool that reads it).
#pragma once
#include <iosfwd>

#include "models/ir/timeline.h"

namespace orrery::ir {

/// Writes the log in the JSON object format of Chrome's Trace Event Format: a process for each
/// device (under process 0, the cluster, iterations and events), a thread for each stream, flow
/// events from send to recv, counters of allocated bytes. Times are microseconds with three
/// decimals. Conditions as for write_perfetto().
void write_chrome(const Program& program, const RunLog& log, const TimelineNames& names,
                  std::ostream& out);

}  // namespace orrery::ir
