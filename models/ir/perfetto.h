/// A run's timeline for ui.perfetto.dev, in Perfetto's protobuf format.
#pragma once
#include <iosfwd>

#include "models/ir/timeline.h"

namespace orrery::ir {

/// Writes the log as a Perfetto trace: cluster, nodes, devices and streams as nested tracks, a
/// slice for each span, an arrow from each send to its recv, a counter of allocated bytes for each
/// device, iterations and events on the cluster's track. `program` must be free of defects and the
/// log its own (find_mismatch() empty). Packets are written one by one; a failed write leaves `out`
/// in a failed state.
void write_perfetto(const Program& program, const RunLog& log, const TimelineNames& names,
                    std::ostream& out);

}  // namespace orrery::ir
