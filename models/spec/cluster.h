/// The cluster: which GPUs are in which nodes and what connects them. Read from YAML; every
/// asymmetry is allowed. Device ids number the devices of the file and stay when devices fail.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/ir/model_shape.h"

namespace orrery::models {

/// A GPU type of models/library/gpus.yaml (or of the cluster file itself).
struct GpuType {
  std::string name;
  std::string vendor;
  /// Dense peak by dtype, tensor cores where the GPU has them; a missing dtype is not supported.
  std::map<ir::Dtype, FlopsPerSecond> peak;
  Bytes memory;
  BytesPerSecond memory_bandwidth;
  /// Share of peak that a large transformer block reaches; the roofline's declared efficiency.
  double efficiency = 0.5;
  /// Share of memory bandwidth that streaming kernels reach.
  double memory_efficiency = 0.8;
  Seconds launch;  ///< Fixed cost of one op of the program (kernel launches of a block).
  std::optional<DollarsPerSecond> price;
  std::optional<DollarsPerSecond> spot_price;
  std::optional<Watts> power;  ///< Largest draw of the board (TDP, TBP).
  std::string source;
};

/// A class of links of models/library/links.yaml, per direction.
struct LinkClass {
  std::string name;
  BytesPerSecond bandwidth;  ///< Raw, one direction.
  Seconds latency;           ///< One way, software included.
  double efficiency = 1.0;   ///< Achievable share of `bandwidth` for large messages.
  bool shared = false;       ///< One medium for all its ports (a PCIe switch uplink), not per port.
  std::string source;
  bool mesh = false;  ///< No switch: a link of this bandwidth between every two GPUs of a domain.
};

/// Devices of a node that a full-bandwidth switch joins (NVSwitch, PCIe peer-to-peer), or a mesh.
struct LinkDomain {
  std::vector<int> members;  ///< Positions in the node's GPU list.
  std::string link;          ///< LinkClass: bandwidth of a GPU's port; of a mesh, of a pair.
  auto operator<=>(const LinkDomain&) const = default;
};

/// GPUs behind one PCIe switch, and the uplink that they share towards the CPU and the NICs.
struct PcieSwitch {
  std::vector<int> members;
  std::string link;    ///< LinkClass of each GPU's own slot.
  std::string uplink;  ///< LinkClass of the shared uplink; empty: not a bottleneck.
  auto operator<=>(const PcieSwitch&) const = default;
};

struct Nic {
  std::string link;  ///< LinkClass.
  /// GPUs that may use it; empty: all GPUs of the node. A GPU uses one NIC: GPUs that may use
  /// several are spread over them in order (8 GPUs, 2 NICs: 0-3 and 4-7).
  std::vector<int> members;
  auto operator<=>(const Nic&) const = default;
};

struct Node {
  std::string name;
  std::vector<int> gpu_types;  ///< Index into Cluster::gpu_types, for each GPU of the node.
  std::vector<LinkDomain> domains;
  std::vector<PcieSwitch> pcie;
  std::vector<Nic> nics;
  BytesPerSecond nvme_read;
  BytesPerSecond nvme_write;
  Bytes nvme_capacity;
  Bytes host_memory;
  BytesPerSecond host_memory_bandwidth;
  std::string region;
  int leaf = 0;  ///< Leaf switch that its NICs hang on.
};

/// Leaf switches under one spine; or, with pods, under a spine in each pod, these under a core.
struct Fabric {
  /// Bandwidth from one leaf switch to its spine, one direction; 0: no limit above the leaves.
  BytesPerSecond leaf_uplink;
  Seconds leaf_latency;
  Seconds spine_latency;
  /// Instead of leaf_uplink: bandwidth of the NICs below a leaf switch over its own; 0: not said.
  double leaf_oversubscription = 0;
  /// Leaf switches of a leaf: NIC n of each of its nodes hangs on switch n % rails, and only the
  /// spine joins these.
  int rails = 1;
  int leaves_per_pod = 0;       ///< Leaf n is of pod n / leaves_per_pod; 0: one spine for all.
  BytesPerSecond spine_uplink;  ///< From one pod to the core, one direction; 0: no limit.
  double spine_oversubscription = 0;  ///< Instead: bandwidth of its leaves' uplinks over its own.
  Seconds core_latency;

  bool limits_leaves() const { return leaf_uplink.value > 0 || leaf_oversubscription > 0; }
  bool limits_pods() const { return spine_uplink.value > 0 || spine_oversubscription > 0; }
  int pod_of(int leaf) const { return leaves_per_pod > 0 ? leaf / leaves_per_pod : 0; }
};

/// Replaces the path between two nodes (both directions).
struct PairOverride {
  NodeId a;
  NodeId b;
  std::optional<BytesPerSecond> bandwidth;  ///< A limit of its own for this pair.
  std::optional<Seconds> latency;           ///< Of NICs and fabric together.
};

/// Two vendors without a common communication library talk through host memory [HetHub 3.1].
struct HostStaging {
  std::string vendor_a;
  std::string vendor_b;
  BytesPerSecond bandwidth;  ///< Per device and direction, through CPU and Ethernet or IPoIB.
  Seconds latency;           ///< One way, on top of that of the links that it passes.
};

enum class BandwidthScope { shared, per_node };
std::vector<std::pair<BandwidthScope, const char*>> enum_names(BandwidthScope);

struct ObjectStorage {
  BytesPerSecond bandwidth;
  BandwidthScope scope = BandwidthScope::shared;
  Seconds latency;
};

/// Where a device is.
struct Device {
  DeviceId id;
  NodeId node;
  int position = 0;  ///< In the node's GPU list.
  int gpu_type = 0;  ///< Index into Cluster::gpu_types.
};

struct Cluster {
  std::string name;
  std::vector<GpuType> gpu_types;
  std::map<std::string, LinkClass> links;
  std::vector<Node> nodes;
  Fabric fabric;
  std::vector<PairOverride> overrides;
  std::vector<HostStaging> host_staging;
  std::optional<ObjectStorage> storage;
  /// Content hash of the resolved description; comments, sources and the cluster's own name do not
  /// matter, nor does how the file says it.
  std::string hash;
  /// Of what GPUs draw, which no time depends on and `hash` leaves out; "": no GPU type says it.
  std::string power_hash;

  std::vector<Device> devices;  ///< By id: node by node, position by position.

  int size() const { return static_cast<int>(devices.size()); }
  const Device& device(DeviceId id) const { return devices[id.index()]; }
  const Node& node(NodeId id) const { return nodes[id.index()]; }
  const GpuType& gpu(DeviceId id) const { return gpu_types[device(id).gpu_type]; }
  std::vector<DeviceId> devices_of(NodeId node) const;
};

/// Fills `devices` and the hashes from the rest; load_cluster() has done it. For clusters built in
/// code.
void seal(Cluster& cluster);

}  // namespace orrery::models
