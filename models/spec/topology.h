/// The cluster as plain one-way links and routes computed by arithmetic. The simulator turns these
/// links into SimGrid's, the closed forms read bottlenecks from them: both see the same network.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/base/id_vector.h"
#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/ir/profile.h"
#include "models/spec/cluster.h"

namespace orrery::models {

struct LinkCalibration;  // models/spec/link_calibration.h

/// A one-way link. `bandwidth` is what large messages achieve (class bandwidth x efficiency).
struct Link {
  std::string name;        ///< "a800-3/nic0/up", "a800-3/gpu5/nvlink-a800/down", "leaf0/up", ...
  std::string link_class;  ///< Name of the LinkClass; "" for limits that have none.
  BytesPerSecond bandwidth;
  Seconds latency;
  /// Never a bottleneck: carries latency only, so that flows over it need not be compared. Its
  /// bandwidth is that of all NICs below it.
  bool uncontended = false;
};

/// Coarse kind of a path, for tables of volumes. A link domain counts as nvlink unless the name of
/// its class starts with "pcie" (peer-to-peer through a PCIe switch).
enum class PathClass { same_device, nvlink, pcie, network, host_staged };
std::vector<std::pair<PathClass, const char*>> enum_names(PathClass);

/// What one transfer between two devices sees when nothing else runs.
struct Path {
  BytesPerSecond bandwidth;  ///< Of the narrowest link.
  Seconds latency;           ///< Sum over the links.
  PathClass kind = PathClass::same_device;
  /// Measurements of the narrowest link's class; null: the profile has none. With segments,
  /// `latency` is its wire_latency, and times of messages come from at_size()
  /// (models/cost/collective.h). Lives as long as the topology.
  const LinkCalibration* calibration = nullptr;
  NodeId source_node = {};       ///< None where the path is not a Topology's.
  NodeId destination_node = {};  ///< The same.
  int source_nic = -1;           ///< Topology::nic_of() of the source.
};

/// Least latency between two different nodes, one way: NICs (the slowest of each node) and fabric,
/// without PCIe and pair overrides.
Seconds network_latency(const Cluster& cluster, NodeId a, NodeId b);

/// Routes, in this order of preference: a link domain that both GPUs belong to (NVLink); PCIe
/// inside the node (slots, and the uplinks of their switches if these differ); slot, switch uplink,
/// NIC, leaf and spine limits, pair override or host staging, and the same in reverse on the other
/// side. Host staging comes before everything else: vendors without a common library cannot use the
/// links that they share.
///
/// Latency: a class's latency is one way and lies half on the up link and half on the down link, so
/// that paths are symmetric. NIC links carry half of the leaf's latency each, leaf uplinks half of
/// the leaf's and half of the spine's: same leaf = 1 leaf, other leaf = 2 leaves + 1 spine. The
/// link of a pair override carries what its latency exceeds that of NICs and fabric. A domain or
/// slot of a shared class is one medium for all its members.
class Topology {
 public:
  explicit Topology(const Cluster& cluster);
  /// With the profile's measured link classes. A path takes the measured times of the class of its
  /// narrowest link (by the cluster file's bandwidths; of equally narrow ones the first that was
  /// measured), and the links of a measured class have its wire_bandwidth. A profile
  /// without links and collectives changes nothing.
  Topology(const Cluster& cluster, const ir::Profile& profile);

  /// Whether the profile says something about one of the links.
  bool calibrated() const { return !calibration_of_.empty(); }
  const IdVector<LinkId, Link>& links() const { return links_; }
  /// Appends the links from `source` to `destination` in order; nothing if they are equal.
  void route(DeviceId source, DeviceId destination, std::vector<LinkId>& links) const;
  Path path(DeviceId source, DeviceId destination) const;
  /// Links that live on a node (its NICs, ports and slots): what goes down with it.
  const std::vector<LinkId>& links_of(NodeId node) const;
  /// Both devices use the same NIC when they talk to other nodes.
  bool share_nic(DeviceId a, DeviceId b) const;

  /// Positions in Node::nics and Node::pcie of what the device uses; -1: none.
  int nic_of(DeviceId device) const { return ports_[device].nic; }
  int pcie_switch_of(DeviceId device) const { return ports_[device].pcie_switch; }
  /// Appends what lies between a device and its node's memory: slot and uplink of its switch.
  /// `up`: away from the device.
  void host_links(DeviceId device, bool up, std::vector<LinkId>& links) const;
  /// Appends the device's NIC, if it has one. `up`: out of the node.
  void nic_link(DeviceId device, bool up, std::vector<LinkId>& links) const;
  /// Appends the links from node to node, from NIC to NIC, without PCIe and host staging. The
  /// devices are on different nodes, each behind a NIC.
  void network_links(DeviceId source, DeviceId destination, std::vector<LinkId>& links) const;

 private:
  struct Duplex {
    LinkId up;
    LinkId down;
  };
  struct Domain {
    int index = 0;  ///< In Node::domains.
    Duplex port;    ///< Of a shared medium: up and down are the same link.
    PathClass kind = PathClass::nvlink;
  };
  struct Port {  ///< A device's own links.
    NodeId node;
    std::vector<Domain> domains;  ///< Fastest first.
    Duplex slot;
    int pcie_switch = -1;
    Duplex uplink;  ///< Of its switch; invalid ids: not a bottleneck.
    int nic = -1;
    Duplex nic_port;
    int vendor = 0;
  };
  LinkId add(std::string name, const std::string& link_class, BytesPerSecond bandwidth,
             Seconds latency, NodeId node, bool uncontended = false);
  Duplex add_duplex(const std::string& name, const LinkClass& link_class, NodeId node,
                    Seconds extra_latency = {});
  void add_domains(const Cluster& cluster, NodeId id, DeviceId first);
  void add_pcie(const Cluster& cluster, NodeId id, DeviceId first);
  void add_nics(const Cluster& cluster, NodeId id, DeviceId first);
  void add_fabric(const Cluster& cluster);
  void add_overrides(const Cluster& cluster);
  void add_staging(const Cluster& cluster);
  const Duplex* staging(DeviceId device, DeviceId peer) const;
  const Duplex* override_of(NodeId a, NodeId b) const;
  BytesPerSecond nic_bandwidth(NodeId node) const;  ///< Sum over its NICs.
  void calibrate(const ir::Profile& profile);
  Path blank_path(DeviceId source, DeviceId destination) const;
  Path calibrated_path(DeviceId source, DeviceId destination) const;
  template <class F>
  void walk_network(const Port& from, const Port& to, F&& take) const;
  template <class F>
  PathClass walk(DeviceId source, DeviceId destination, F&& take) const;

  IdVector<LinkId, Link> links_;
  IdVector<DeviceId, Port> ports_;
  IdVector<NodeId, std::vector<LinkId>> of_node_;
  IdVector<NodeId, std::vector<Duplex>> nics_;
  IdVector<NodeId, std::size_t> leaf_;  ///< Numbered from 0.
  std::vector<Duplex> leaf_uplinks_;    ///< By leaf; empty without limit and latency.
  /// Sorted by node pair (lower id first); up leads from the lower to the higher.
  std::vector<std::pair<std::pair<int, int>, Duplex>> overrides_;
  int vendors_ = 0;
  std::vector<int> staging_of_;  ///< By vendor pair: index into staging_, or -1.
  std::vector<IdVector<DeviceId, Duplex>> staging_;
  /// The next three stay empty where no link class of the cluster is in the profile.
  std::shared_ptr<const std::map<std::string, LinkCalibration>> calibrations_;
  IdVector<LinkId, const LinkCalibration*> calibration_of_;  ///< Null: not measured.
  IdVector<LinkId, BytesPerSecond> declared_;                ///< The cluster file's.
};

}  // namespace orrery::models
