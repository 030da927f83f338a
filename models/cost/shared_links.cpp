#include "models/cost/shared_links.h"

#include <algorithm>
#include <vector>

#include "models/cost/collective.h"

namespace orrery::models {

void SharedLinks::add(ir::CollectiveKind kind, std::span<const DeviceId> group, Bytes bytes,
                      std::span<const double> bytes_per_peer) {
  alone_ = std::max(alone_, collective_time(kind, CollectiveAlgorithm::ring, group, bytes,
                                            network_.path, bytes_per_peer));
  std::vector<LinkId> route;
  for (const FlowEdge& edge : collective_flows(kind, group, bytes, network_.path, bytes_per_peer)) {
    const Seconds latency =
        network_.path(edge.source, edge.destination).latency + edge.extra_latency;
    route.clear();
    network_.topology.route(edge.source, edge.destination, route);
    for (const LinkId id : route) {
      const Link& link = network_.topology.links()[id];
      if (link.uncontended) continue;
      const auto slow = network_.slowdown.find(id);
      const double factor = slow == network_.slowdown.end() ? 1 : slow->second;
      Load& load = loads_[id];
      load.busy += edge.bytes / (link.bandwidth / factor);
      load.latency = std::max(load.latency, latency);
    }
  }
}

Seconds SharedLinks::time() const {
  Seconds longest = alone_;
  for (const auto& [link, load] : loads_) longest = std::max(longest, load.busy + load.latency);
  return longest;
}

}  // namespace orrery::models
