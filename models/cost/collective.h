/// Closed forms of collectives on the bottleneck of the group. The flow simulator uses the same
/// algorithms edge by edge; both agree when nothing is shared (tests/sim_iteration).
///
/// A closed form knows of each edge only the path that PathFunction gives: its narrowest link and
/// its latency. It does not know which links two edges have in common, so edges that leave a node
/// side by side through one NIC are priced as if each had it alone; the flows of the simulator and
/// shared_links.h share it. Order the group node by node (ring_order) where that matters.
///
/// On paths with a calibration every message takes the latency and the bandwidth of its size, and
/// rings, chains and direct all-to-all are multiplied by the factor that was measured for as many
/// ranks on the class of the narrowest edge. Trees are not: the factor was measured on rings.
///
/// Where a profile lists the ways in which a communication library carries a collective over the
/// links of a domain (ir::CollectiveWay), a ring inside of one domain takes the fastest of them for
/// its size and members in place of its own time and of measured factors, and a ring between nodes
/// the fastest pipeline of chunks (models/cost/collective_ways.h).
/// Messages are what one step sends: a p-th of the tensor in a ring, all of it in a chain or tree,
/// each pair's bytes in an all-to-all.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/cost/path_function.h"
#include "models/ir/program.h"

namespace orrery::models {

enum class CollectiveAlgorithm {
  /// p - 1 steps around the ring in group order, each of a p-th of the tensor (all-reduce twice
  /// that): with equal edges steps * (bytes / p / bandwidth + latency), else ring_duration().
  /// A group that can leave its nodes through several NICs splits the tensor over as many rings:
  /// nic_rings(). Members that each two have a link of their own (a mesh) exchange p-ths directly,
  /// all at once: an all-reduce in two steps. Broadcast: a pipelined chain in group order, bytes /
  /// narrowest edge + sum of
  /// latencies.
  /// [Thakur et al. 2005; nccl-tests, doc/PERFORMANCE.md]
  ring,
  /// All-reduce over two binary trees that carry half of the tensor each: 2 bytes / B + 2 ceil(log2
  /// p) latencies. Broadcast: half of that. All-gather by recursive doubling, reduce-scatter by
  /// recursive halving: (p-1)/p bytes / B + ceil(log2 p) latencies. B is the narrowest and the
  /// latency the longest over all pairs. [Sanders, Speck, Traeff 2009; Thakur et al. 2005]
  tree,
  /// Rings inside each node, and between nodes one ring for each of k slices, k being the smallest
  /// number of members on one node: reduce-scatter inside, all-reduce between, all-gather inside.
  /// All-gather and reduce-scatter leave out what they do not need; broadcast is a chain over the
  /// first members of the nodes, then one inside each node. Phases follow one another and are as
  /// long as their slowest ring. [Mikami et al. 2018, hierarchical all-reduce]
  hierarchical,
};

/// One edge of a ring (or tree) as a long flow: `bytes` over it, then `extra_latency` for the
/// latencies of the remaining steps, which a single flow does not pay.
struct FlowEdge {
  DeviceId source;
  DeviceId destination;
  Bytes bytes;
  Seconds extra_latency;
};

/// The rings by which a group reduces and gathers, the tensor in equal shares: one for each NIC
/// that the members have on every node, so that each ring leaves and enters a node through NICs of
/// its own; ring j visits the members of a node in their order, beginning with those of its j-th
/// NIC, those of a mesh so that the rings share as few of its links as possible. As NCCL builds its
/// channels [NCCL, graph search; unverified]. The group alone where it stays on one node, is not in
/// order node by node, or where `path` does not know nodes.
std::vector<std::vector<DeviceId>> nic_rings(std::span<const DeviceId> group,
                                             const PathFunction& path);

/// The path with the latency and bandwidth of messages of `message` bytes; without calibrated
/// segments the path itself. Where another link is narrower than the class's wire (slowed, or of
/// another class), the bandwidth does not exceed that link's.
Path at_size(const Path& path, Bytes message);

/// One message as a flow. On a calibrated path, whose links have the class's wire bandwidth, what
/// a message of this size takes beyond bytes / wire bandwidth + wire latency is extra latency:
/// alone it takes exactly point_to_point_time; next to others it shares the links by its bytes.
/// Elsewhere there is none.
FlowEdge point_to_point_flow(DeviceId source, DeviceId destination, Bytes bytes,
                             const PathFunction& path);

/// The flows of one collective by the ring algorithm, over all nic_rings(), all started together;
/// it ends when the last one ends. `bytes` is the size of the full (gathered, reduced) tensor. Of
/// one ring: all-reduce over p devices: every edge carries 2(p-1)/p * bytes [nccl-tests,
/// doc/PERFORMANCE.md] and pays what ring_duration() takes beyond the bytes of the narrowest edge,
/// 2(p-1) latencies if all edges are equal; all-gather and reduce-scatter have half as many steps;
/// broadcast: pipelined chain in group order; all-to-all: one flow for each pair that has bytes.
/// `bytes_per_peer` is read for all-to-all only: from each member to each other, row-major, p * p;
/// empty: bytes / p^2 for each pair. A measured factor multiplies bytes and latencies, so that link
/// use counts the bytes that would take as long.
std::vector<FlowEdge> collective_flows(ir::CollectiveKind kind, std::span<const DeviceId> group,
                                       Bytes bytes, const PathFunction& path,
                                       std::span<const double> bytes_per_peer = {});

/// Whether the ring algorithm takes rings, which can be followed step by step: neither a mesh nor a
/// pipeline of chunks.
bool takes_rings(ir::CollectiveKind kind, std::span<const DeviceId> group, Bytes bytes,
                 const PathFunction& path);

/// One step of the ring algorithm over one of nic_rings(), by edge in ring order: each of a p-th of
/// the tensor, without the latencies of other edges.
std::vector<FlowEdge> ring_step_flows(ir::CollectiveKind kind, std::span<const DeviceId> group,
                                      Bytes bytes, const PathFunction& path);

/// Time of one collective alone on the network. p = 1 takes no time. All-to-all is direct under
/// every algorithm: each member sends and receives through one port, all of it one after the other:
/// max over members of the sum over peers of bytes / bandwidth, plus the longest latency.
Seconds collective_time(ir::CollectiveKind kind, CollectiveAlgorithm algorithm,
                        std::span<const DeviceId> group, Bytes bytes, const PathFunction& path,
                        std::span<const double> bytes_per_peer = {});

/// alpha + bytes / bandwidth of the path. Nothing between a device and itself.
Seconds point_to_point_time(DeviceId source, DeviceId destination, Bytes bytes,
                            const PathFunction& path);

/// The devices node by node (nodes in the order in which they first appear, devices of a node in
/// their order), so that a ring over them crosses each node boundary once in each direction.
std::vector<DeviceId> ring_order(std::span<const DeviceId> devices,
                                 const std::function<NodeId(DeviceId)>& node_of);

}  // namespace orrery::models
