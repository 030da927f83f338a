/// One trace for several jobs that run on parts of the cluster.
#pragma once
#include <vector>

#include "models/base/ids.h"
#include "models/spec/cluster.h"
#include "traces/trace.h"

namespace orrery::traces {

/// What of a trace that is bound to the cluster (bind.h) each part sees, in their order. The GPUs
/// of others leave at the start and do not come back. What happens to a node or GPU goes to the
/// part that has it, what happens to a link to all. A failure of the job hits one GPU of the
/// cluster, drawn from the trace's seed and its line, and so the part that has it, if one does;
/// `slow` and `restore` of the job are everybody's.
std::vector<Trace> split(const Trace& trace, const models::Cluster& cluster,
                         const std::vector<std::vector<DeviceId>>& parts);

}  // namespace orrery::traces
