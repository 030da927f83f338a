/// Storage as links in addition to the cluster's network, and the links that a transfer of model
/// state takes.
///
/// Each node has a link for its host memory (both directions share it), one for NVMe reads and one
/// for NVMe writes; the object storage is one link, or one for each node, which reads and writes
/// share. The path between a node and the object storage has the device's NIC, if it has one, but
/// not the fabric. A host memory without a bandwidth is never the bottleneck.
#pragma once
#include <memory>
#include <vector>

#include "models/base/id_vector.h"
#include "models/interfaces/transfer_timer.h"
#include "models/spec/cluster.h"
#include "models/spec/topology.h"
#include "sim/platform/platform.h"

namespace orrery::sim {

class TransferPaths {
 public:
  /// Keeps references.
  TransferPaths(const models::Cluster& cluster, const models::Topology& topology);

  /// For the one engine of the process (IterationSimulator, or make_platform).
  PlatformExtension extension() const;

  /// Appends the links that the transfer occupies, each once, and sets its latency: the sum over
  /// all links of the route and the object storage; between peers on a calibrated path what
  /// point_to_point_flow says. Aborts when the cluster does not have the storage.
  void path(const models::StateTransfer& transfer, std::vector<LinkId>& links,
            Seconds& latency) const;
  BytesPerSecond bandwidth(LinkId link) const;

  /// Most flows that assign() can take.
  static constexpr int kHosts = 128;
  static constexpr std::size_t kFlows = std::size_t{kHosts} * (kHosts - 1);
  /// From now on flow i of a set, between the hosts of ends(i), takes `paths[i]`. In one process
  /// only once; call it in a fork.
  void assign(std::vector<std::vector<LinkId>> paths) const;
  /// Hosts of the platform.
  std::pair<int, int> ends(std::size_t flow) const;

 private:
  class Table;
  LinkId add(BytesPerSecond bandwidth);
  void add_storage(ir::Location location, NodeId node, bool write,
                   std::vector<LinkId>& links) const;

  const models::Cluster& cluster_;
  const models::Topology& topology_;
  std::vector<LinkSpec> links_;
  IdVector<NodeId, LinkId> host_memory_, nvme_read_, nvme_write_, cloud_;  ///< Or invalid.
  std::shared_ptr<Table> table_;
};

}  // namespace orrery::sim
