#include "sim/iteration/slow_links.h"

#include <algorithm>
#include <vector>

namespace orrery::sim {

LinkFactors link_factors(const models::Topology& topology, const IterationOptions& options) {
  LinkFactors factors;
  for (const SlowLink& slow : options.slow_links) {
    const LinkId link = topology.find(slow.link);
    if (link.valid()) factors.try_emplace(link, 1.0).first->second *= slow.slowdown;
  }
  return factors;
}

models::PathFunction path_function(const models::Topology& topology, const LinkFactors& factors) {
  if (factors.empty()) {
    return [&](DeviceId a, DeviceId b) { return topology.path(a, b); };
  }
  return [&](DeviceId a, DeviceId b) {
    models::Path path = topology.path(a, b);
    std::vector<LinkId> links;
    topology.route(a, b, links);
    for (const LinkId link : links) {
      const auto slow = factors.find(link);
      if (slow == factors.end()) continue;
      path.bandwidth = std::min(path.bandwidth, topology.links()[link].bandwidth / slow->second);
    }
    return path;
  };
}

}  // namespace orrery::sim
