/// The cluster as plain one-way links and routes computed by arithmetic. The simulator turns these
/// links into SimGrid's, the closed forms read bottlenecks from them: both see the same network.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/base/id_vector.h"
#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/ir/profile.h"
#include "models/spec/cluster.h"

namespace orrery::models {

struct LinkCalibration;  // models/spec/link_calibration.h

/// What one-way links of a kind have in common. `bandwidth` is what large messages achieve (class
/// bandwidth x efficiency).
struct Link {
  std::string link_class;  ///< Name of the LinkClass; "" for limits that have none.
  BytesPerSecond bandwidth;
  Seconds latency;
  /// Never a bottleneck: carries latency only, so that flows over it need not be compared. Its
  /// bandwidth is that of all NICs below it.
  bool uncontended = false;
  bool mesh = false;  ///< Of one pair of a mesh.
};

/// The links of a topology by id. Those of one kind are one Link: a cluster of a million GPUs has
/// millions of links of a few kinds.
class Links {
 public:
  std::size_t size() const { return kind_of_.size(); }
  IdRange<LinkId> ids() const { return kind_of_.ids(); }
  const Link& operator[](LinkId link) const { return kinds_[kind_of_[link]]; }

 private:
  friend class Topology;
  std::vector<Link> kinds_;
  IdVector<LinkId, std::uint32_t> kind_of_;
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
  bool mesh = false;             ///< Over a link that only these two devices use.
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
/// the leaf's and half of the spine's, spine uplinks half of the spine's and half of the core's:
/// same leaf = 1 leaf, other leaf = 2 leaves + 1 spine, other pod = 2 leaves + 2 spines + 1 core.
/// The link of a pair override carries what its latency exceeds that of NICs and fabric. A domain
/// or slot of a shared class is one medium for all its members; in a domain of a mesh's class every
/// two members have a link of their own in each direction.
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
  const Links& links() const { return links_; }
  /// "a800-3/nic0/up", "a800-3/gpu5/nvlink-a800/down", "a/gpu0/mesh/to/gpu5", "leaf0/up",
  /// "leaf0/rail3/up", "pod1/down": different for all links of a cluster whose nodes have different
  /// names.
  std::string name_of(LinkId link) const;
  /// The link of that name; invalid: there is none. Takes the number of links of a node, not of
  /// the cluster, but for the first call, which sorts the nodes by name.
  LinkId find(std::string_view name) const;
  /// Appends the links from `source` to `destination` in order; nothing if they are equal.
  void route(DeviceId source, DeviceId destination, std::vector<LinkId>& links) const;
  Path path(DeviceId source, DeviceId destination) const;
  /// Links that live on a node (its NICs, ports and slots): what goes down with it.
  std::vector<LinkId> links_of(NodeId node) const;
  /// The node that the link lives on; none of the fabric's and of pair overrides.
  NodeId node_of(LinkId link) const;
  /// Uplinks of leaves and pods.
  IdRange<LinkId> fabric() const { return {first_leaf_uplink_, first_override_}; }
  bool is_fabric(LinkId link) const {
    return !(link < first_leaf_uplink_) && link < first_override_;
  }
  /// Both devices use the same NIC when they talk to other nodes.
  bool share_nic(DeviceId a, DeviceId b) const;

  /// Positions in Node::nics and Node::pcie of what the device uses; -1: none.
  int nic_of(DeviceId device) const { return end_of(device).port.nic; }
  int pcie_switch_of(DeviceId device) const { return end_of(device).port.pcie_switch; }
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
  // Nodes that are built alike share a NodeKind, which numbers a node's links from 0.
  using Local = std::int32_t;
  struct LocalDuplex {
    Local up = -1;
    Local down = -1;
  };
  struct Domain {
    int index = 0;          ///< In Node::domains.
    LocalDuplex port;       ///< Of a shared medium: up and down are the same link; of a mesh: none.
    std::vector<Local> to;  ///< Of a mesh: by position of the other device.
    PathClass kind = PathClass::nvlink;
  };
  struct Port {                   ///< A device's own links.
    std::vector<Domain> domains;  ///< Fastest first.
    LocalDuplex slot;
    int pcie_switch = -1;
    LocalDuplex uplink;  ///< Of its switch; -1: not a bottleneck.
    int nic = -1;
    LocalDuplex nic_port;
    int vendor = 0;
  };
  struct LocalLink {
    std::string name;  ///< After the node's.
    std::uint32_t kind = 0;
  };
  struct NodeKind {
    std::vector<LocalLink> links;
    std::vector<Port> ports;  ///< By position.
    std::vector<LocalDuplex> nics;
  };
  struct PlacedNode {
    std::uint32_t kind = 0;
    std::uint32_t leaf = 0;  ///< Numbered from 0.
    LinkId first_link;
    DeviceId first_device;
  };
  /// Where a path begins or ends.
  struct End {
    NodeId id;
    const PlacedNode& node;
    const NodeKind& kind;
    const Port& port;
    LinkId link(Local local) const { return {node.first_link.value + local}; }
    std::uint32_t kind_of(Local local) const { return kind.links[local].kind; }
  };
  struct Staging {
    std::string name;               ///< "staging-a-b"
    std::vector<DeviceId> devices;  ///< Their links follow one another.
    IdVector<DeviceId, Duplex> of_device;
  };
  class Builder;
  struct NodesByName;

  End end_of(DeviceId device) const {
    const NodeId id = node_of_[device];
    const PlacedNode& node = nodes_[id];
    const NodeKind& kind = kinds_[node.kind];
    return {id, node, kind, kind.ports[device.value - node.first_device.value]};
  }
  std::string node_name(NodeId node) const;
  std::vector<LinkId> staging_links(NodeId node) const;
  std::pair<const Staging*, DeviceId> staged(LinkId link) const;
  std::size_t leaf_switch(const End& end) const;
  Duplex leaf_uplink(std::size_t leaf_switch) const;
  Duplex pod_uplink(std::size_t pod) const;
  const Duplex* staging(const End& end, DeviceId device, const End& peer) const;
  const Duplex* override_of(NodeId a, NodeId b) const;
  void calibrate(const ir::Profile& profile);
  static Path blank_path(const End& source, const End& destination);
  Path calibrated_path(DeviceId source, DeviceId destination) const;
  template <class F>
  void walk_network(const End& from, const End& to, F&& take) const;
  template <class F>
  PathClass walk(DeviceId source, const End& from, DeviceId destination, const End& to,
                 F&& take) const;

  Links links_;
  std::vector<NodeKind> kinds_;
  IdVector<NodeId, PlacedNode> nodes_;
  IdVector<NodeId, std::string> names_;  ///< Of nodes.
  std::shared_ptr<NodesByName> by_name_;
  IdVector<DeviceId, NodeId> node_of_;
  // Fabric: the uplinks of leaf switches, then those of pods, follow the links of nodes. Pair
  // overrides come next, then staging, device by device.
  std::size_t rails_ = 1;  ///< Leaf switches of a leaf.
  LinkId first_leaf_uplink_, first_pod_uplink_, first_override_, first_staging_;
  bool has_leaf_uplinks_ = false;
  bool has_pod_uplinks_ = false;
  std::vector<int> leaf_numbers_;  ///< By leaf: of the cluster file; ascending.
  std::vector<std::uint32_t> pod_of_leaf_;
  std::vector<int> pod_numbers_;  ///< By pod.
  /// Sorted by node pair (lower id first); up leads from the lower to the higher.
  std::vector<std::pair<std::pair<int, int>, Duplex>> overrides_;
  int vendors_ = 0;
  std::vector<int> staging_of_;  ///< By vendor pair: index into staging_, or -1.
  std::vector<Staging> staging_;
  /// The next three stay empty where no link class of the cluster is in the profile.
  std::shared_ptr<const std::map<std::string, LinkCalibration>> calibrations_;
  std::vector<const LinkCalibration*> calibration_of_;  ///< By kind of links; null: not measured.
  std::vector<BytesPerSecond> declared_;                ///< The same: the cluster file's.
};

}  // namespace orrery::models
