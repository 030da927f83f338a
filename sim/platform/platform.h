/// From a cluster's topology to what the flow engine knows: plain links, hosts and routes.
#pragma once
#include "models/spec/topology.h"
#include "sim/flow/platform.h"

namespace orrery::sim {

/// Links as in Topology::links(), with the same ids and bandwidths, named by their id; host i is
/// device i.
/// Routes leave out links that are never a bottleneck (Link::uncontended) but count their latency.
/// The result refers to `topology`, which must outlive every engine that is built from it.
FlowPlatform make_platform(const models::Topology& topology, int devices);

}  // namespace orrery::sim
