#include "sim/iteration/slow_links.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
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
  std::unordered_map<std::int32_t, BytesPerSecond> slowed;
  for (const auto& [link, factor] : factors) {
    slowed[link.value] = topology.links()[link].bandwidth / factor;
  }
  return [&topology, slowed = std::move(slowed), links = std::vector<LinkId>()](
             DeviceId a, DeviceId b) mutable {
    models::Path path = topology.path(a, b);
    links.clear();
    topology.route(a, b, links);
    for (const LinkId link : links) {
      const auto slow = slowed.find(link.value);
      if (slow != slowed.end()) path.bandwidth = std::min(path.bandwidth, slow->second);
    }
    return path;
  };
}

}  // namespace orrery::sim
