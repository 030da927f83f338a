/// The cluster as plain one-way links and routes computed by arithmetic. The simulator turns these
/// links into SimGrid's, the closed forms read bottlenecks from them: both see the same network.
#pragma once
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/spec/cluster.h"

namespace orrery::models {

/// A one-way link. `bandwidth` is what large messages achieve (class bandwidth x efficiency).
struct Link {
  std::string name;        ///< "node3/nic0/up", "node3/gpu5/nvlink/down", ...
  std::string link_class;  ///< Name of the LinkClass; "" for limits that have none.
  BytesPerSecond bandwidth;
  Seconds latency;
};

/// Coarse kind of the slowest part of a path, for tables of volumes.
enum class PathClass { same_device, nvlink, pcie, network, host_staged };

/// What one transfer between two devices sees when nothing else runs.
struct Path {
  BytesPerSecond bandwidth;  ///< Of the narrowest link.
  Seconds latency;           ///< Sum over the links.
  PathClass kind = PathClass::same_device;
};

/// Routes, in this order of preference: a link domain that both GPUs belong to (NVLink); PCIe
/// inside the node (slots, and the uplinks of their switches if these differ); slot, switch uplink,
/// NIC, leaf and spine limits, pair override or host staging, and the same way down on the other
/// side.
class Topology {
 public:
  explicit Topology(const Cluster& cluster);

  const std::vector<Link>& links() const { return links_; }
  /// Appends the links from `source` to `destination` in order; nothing if they are equal.
  void route(DeviceId source, DeviceId destination, std::vector<LinkId>& links) const;
  Path path(DeviceId source, DeviceId destination) const;
  /// Links that live on a node (its NICs, ports and slots): what goes down with it.
  const std::vector<LinkId>& links_of(NodeId node) const;
  /// Both devices use the same NIC when they talk to other nodes.
  bool share_nic(DeviceId a, DeviceId b) const;

 private:
  struct Duplex {
    LinkId up;
    LinkId down;
  };
  struct Port {  ///< A device's own links.
    NodeId node;
    std::vector<std::pair<int, Duplex>> domains;  ///< (domain of the node, port).
    Duplex slot;
    int pcie_switch = -1;
    Duplex uplink;  ///< Of its switch; invalid ids: not a bottleneck.
    int nic = -1;
    Duplex nic_port;
    int vendor = 0;
  };
  LinkId add(std::string name, const std::string& link_class, BytesPerSecond bandwidth,
             Seconds latency, NodeId node);
  Duplex add_duplex(const std::string& name, const LinkClass& link_class, NodeId node);

  std::vector<Link> links_;
  std::vector<Port> ports_;
  std::vector<std::vector<LinkId>> of_node_;
  std::vector<int> leaf_;             ///< By node.
  std::vector<Duplex> leaf_uplinks_;  ///< By leaf; empty without a limit.
  std::vector<std::pair<std::pair<int, int>, Duplex>> overrides_;  ///< Sorted by node pair.
  std::vector<std::vector<std::vector<Duplex>>> staging_;  ///< By vendor pair, then by node.
};

}  // namespace orrery::models
