#include "sim/iteration/slow_links.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orrery::sim {

LinkFactors link_factors(const models::Topology& topology, const IterationOptions& options) {
  LinkFactors factors;
  if (options.slow_links.empty()) return factors;
  std::unordered_map<std::string_view, double> by_name;
  for (const SlowLink& slow : options.slow_links) {
    by_name.try_emplace(slow.link, 1.0).first->second *= slow.slowdown;
  }
  for (const LinkId link : topology.links().ids()) {
    const auto slow = by_name.find(topology.links()[link].name);
    if (slow != by_name.end()) factors[link] = slow->second;
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
