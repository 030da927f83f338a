/// What the readers of logs share: failures and returns of named nodes at wall-clock times, as a
/// trace. Private to traces/import.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/ir/cluster_event.h"
#include "traces/import/import.h"

namespace orrery::traces {

/// Something that a log says of a node; of `job` where `of_job`.
struct NodeEvent {
  std::int64_t at = 0;  ///< parse_clock()
  ir::EventKind kind = ir::EventKind::fail;
  bool of_job = false;
  std::string node;
  std::string cause;
};

/// The first event, or ImportOptions::start, is time 0, the last one the horizon. A node that is
/// down and fails again stays down, as one that is up and comes back stays up. With
/// ImportOptions::repair_after, nodes come back so long after their last failure.
Trace from_node_events(std::vector<NodeEvent> events, const ImportInput& input);

}  // namespace orrery::traces
