/// Which path brings a slice to its receiver fastest: what batched send-receive chooses senders by.
/// "The one with the highest bandwidth to the receiver is chosen." [Hetu v2, 4.3, heuristic II]
///
/// The bandwidth of a path is that of its narrowest link. A link of a node that several GPUs use (a
/// NIC, a PCIe uplink, a shared medium) counts divided by their number: in a switch all GPUs of a
/// node send at once. Links of the fabric (leaves, limits between two nodes) count whole.
///
/// Deviation: the paper does not say what a GPU's bandwidth through a shared NIC is, nor which path
/// is better where two of different kinds are equally fast: here the one that comes first in
/// PathClass (NVLink, PCIe, network, through host memory).
#pragma once
#include <cstddef>
#include <vector>

#include "models/base/id_vector.h"
#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/ir/program.h"
#include "models/sharding/batched_send_receive.h"
#include "models/spec/cluster.h"
#include "models/spec/topology.h"

namespace orrery::models {

inline constexpr std::size_t kPathClasses = 5;  ///< Enumerators of PathClass.

/// Keeps references to cluster and topology (which is the cluster's).
class LinkRanks {
 public:
  /// Bandwidths that differ by less than this share are equal: sums and quotients of the same
  /// numbers in another order differ by some 1e-16, links that are meant to differ by far more.
  static constexpr double kTolerance = 1e-6;

  /// `store`: where senders have the slices. peer: in their memory. host_memory or nvme: in that of
  /// their node, of which all its GPUs read at once; the slot of the sender is then not passed.
  LinkRanks(const Cluster& cluster, const Topology& topology,
            ir::Location store = ir::Location::peer);

  /// Lower is faster; equal for paths that are equally fast and of one kind.
  int operator()(int source, int destination);
  static PathClass kind_of(int rank) { return static_cast<PathClass>(rank % kPathClasses); }
  /// Bytes that a GPU sends over paths of one kind add up, however fast they are: they leave it the
  /// same way. Refers to this object.
  BatchedOptions heuristics();

 private:
  int measure(DeviceId source, DeviceId destination);
  void rank_bandwidths(std::vector<double> shares, std::vector<double> store_shares);
  void group_devices();

  const Cluster& cluster_;
  const Topology& topology_;
  ir::Location store_;
  IdVector<LinkId, int> speed_;           ///< By link: 0 is the fastest bandwidth of the cluster.
  IdVector<NodeId, int> store_speed_;     ///< By node.
  IdVector<DeviceId, std::size_t> port_;  ///< By device: devices with equal links to other nodes.
  std::size_t ports_ = 0;
  std::vector<int> between_;  ///< Ranks between ports on two nodes, -1: not yet known; or empty.
  std::vector<LinkId> links_;
};

/// Bandwidth by link of the topology that each of the link's GPUs has when all use it. Fabric links
/// whole; infinite where the link is never a bottleneck.
std::vector<BytesPerSecond> shares_of_links(const Cluster& cluster, const Topology& topology);

}  // namespace orrery::models
