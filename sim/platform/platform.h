/// From a cluster's topology to what the flow engine knows: plain links, hosts and routes.
#pragma once
#include <memory>
#include <vector>

#include "models/spec/topology.h"
#include "sim/flow/platform.h"

namespace orrery::sim {

/// Links as in Topology::links(), with the same ids and bandwidths; host i is device i.
/// Routes leave out links that are never a bottleneck (Link::uncontended) but count their latency;
/// a calibrated path has the latency that Topology::path says.
/// The result refers to `topology`, which must outlive every engine that is built from it.
FlowPlatform make_platform(const models::Topology& topology, int devices);

/// What a platform has in addition to the cluster's network: storage, for example.
struct PlatformExtension {
  /// Their ids follow those of Topology::links().
  std::vector<LinkSpec> links;
  /// Hosts after the devices; flows join them only with one another.
  int hosts = 0;
  /// Between these hosts, counted from 0; may name any link of the platform.
  std::shared_ptr<const RouteTable> routes;
};
FlowPlatform make_platform(const models::Topology& topology, int devices,
                           const PlatformExtension& extension);

}  // namespace orrery::sim
