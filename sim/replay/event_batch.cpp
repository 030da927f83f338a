#include "sim/replay/event_batch.h"

#include <algorithm>
#include <set>

#include "traces/names.h"

namespace orrery::sim {
namespace {

std::set<NodeId> nodes_of(const ir::ClusterEvent& event, const models::Cluster& cluster) {
  std::set<NodeId> nodes;
  if (event.scope.kind == ir::EventScope::Kind::node) nodes.insert(event.scope.node);
  if (event.scope.kind == ir::EventScope::Kind::devices) {
    for (const DeviceId device : event.scope.devices) nodes.insert(cluster.device(device).node);
  }
  return nodes;
}

}  // namespace

Events first_batch(Events events, const models::Cluster& cluster) {
  std::set<NodeId> lost;
  std::size_t size = 0;
  for (; size < events.size() && events[size].time == events.front().time; ++size) {
    const ir::EventKind kind = events[size].kind;
    const std::set<NodeId> nodes = nodes_of(events[size], cluster);
    if (kind == ir::EventKind::fail || kind == ir::EventKind::leave) {
      lost.insert(nodes.begin(), nodes.end());
    } else if (kind == ir::EventKind::repair || kind == ir::EventKind::join) {
      if (std::any_of(nodes.begin(), nodes.end(), [&](NodeId n) { return lost.contains(n); }))
        break;
    }
  }
  return events.first(size);
}

std::string cause_of(Events events) {
  std::string text;
  std::set<std::string> known;
  for (const ir::ClusterEvent& event : events) {
    const std::string cause = event.cause.empty() ? traces::kind_name(event.kind) : event.cause;
    if (!known.insert(cause).second) continue;
    if (!text.empty()) text += ", ";
    text += cause;
  }
  return text;
}

}  // namespace orrery::sim
