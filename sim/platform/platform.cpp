#include "sim/platform/platform.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace orrery::sim {
namespace {

class TopologyRoutes final : public RouteTable {
 public:
  explicit TopologyRoutes(const models::Topology& topology) : topology_(topology) {}

  void route(int source_host, int destination_host, std::vector<LinkId>& links,
             Seconds& latency) const override {
    topology_.route({source_host}, {destination_host}, links);
    latency = Seconds{};
    const auto& all = topology_.links();
    for (const LinkId link : links) latency += all[link].latency;
    if (topology_.calibrated()) latency = topology_.path({source_host}, {destination_host}).latency;
    std::erase_if(links, [&](LinkId link) { return all[link].uncontended; });
  }

 private:
  const models::Topology& topology_;
};

class ExtendedRoutes final : public RouteTable {
 public:
  ExtendedRoutes(const models::Topology& topology, int devices,
                 std::shared_ptr<const RouteTable> extension)
      : network_(topology), devices_(devices), extension_(std::move(extension)) {}

  void route(int source_host, int destination_host, std::vector<LinkId>& links,
             Seconds& latency) const override {
    if (source_host < devices_)
      return network_.route(source_host, destination_host, links, latency);
    extension_->route(source_host - devices_, destination_host - devices_, links, latency);
  }

 private:
  TopologyRoutes network_;
  int devices_;
  std::shared_ptr<const RouteTable> extension_;
};

}  // namespace

FlowPlatform make_platform(const models::Topology& topology, int devices) {
  FlowPlatform platform;
  platform.links.reserve(topology.links().size());
  for (const LinkId id : topology.links().ids()) {
    const models::Link& link = topology.links()[id];
    platform.links.push_back({link.bandwidth, link.latency});
  }
  platform.hosts = devices;
  platform.routes = std::make_shared<TopologyRoutes>(topology);
  return platform;
}

FlowPlatform make_platform(const models::Topology& topology, int devices,
                           const PlatformExtension& extension) {
  FlowPlatform platform = make_platform(topology, devices);
  if (extension.hosts == 0) return platform;
  platform.links.insert(platform.links.end(), extension.links.begin(), extension.links.end());
  platform.hosts += extension.hosts;
  platform.routes = std::make_shared<ExtendedRoutes>(topology, devices, extension.routes);
  return platform;
}

}  // namespace orrery::sim
