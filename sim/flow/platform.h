/// What the flow engine knows about a cluster: links, hosts and routes, without nodes, GPUs or
/// SimGrid. sim/platform builds it from a Cluster; the engine turns it into one flat SimGrid zone.
#pragma once
#include <memory>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"

namespace orrery::sim {

/// A unidirectional link; a full-duplex cable is two of them. All flows on it share it max-min.
struct LinkSpec {
  BytesPerSecond bandwidth;  ///< Positive.
  Seconds latency;           ///< For route tables; see RouteTable::route.
};

/// Routes by arithmetic, so that a large cluster stores none. Hosts are numbered from 0.
class RouteTable {
 public:
  virtual ~RouteTable() = default;
  /// Appends the links that a flow occupies, in order, to `links` (empty on entry) and sets
  /// `latency` to the whole one-way latency of the route: the engine adds no link's latency to it.
  /// Called with source_host != destination_host only. No links mean infinite bandwidth.
  /// Equal arguments must give equal answers for as long as the engine lives.
  virtual void route(int source_host, int destination_host, std::vector<LinkId>& links,
                     Seconds& latency) const = 0;
};

/// Everything from which an engine is built. Shape: LinkId indexes `links`.
struct FlowPlatform {
  std::vector<LinkSpec> links;
  int hosts = 0;  ///< A host is an end point of flows and a place of delays, usually one GPU.
  std::shared_ptr<const RouteTable> routes;  ///< May be null only if no flow joins two hosts.
};

}  // namespace orrery::sim
