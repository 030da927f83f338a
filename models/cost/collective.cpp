#include "models/cost/collective.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "models/base/check.h"
#include "models/cost/collective_ways.h"
#include "models/cost/ring_steps.h"
#include "models/spec/link_calibration.h"

namespace orrery::models {
namespace {

using ir::CollectiveKind;
using Group = std::span<const DeviceId>;

/// A group's members on one node: those from position `first` to the next node's.
struct NodeMembers {
  std::size_t first = 0;
  std::vector<std::size_t> starts;  ///< Positions after `first` where the next NIC's devices begin.
  bool mesh = false;                ///< Neighbors have a link of their own.
};

/// Narrowest bandwidth and latencies over a set of edges that carry messages of one size.
struct Bottleneck {
  explicit Bottleneck(Bytes message) : message(message) {}
  Bytes message;
  BytesPerSecond bandwidth{HUGE_VAL};
  Seconds longest;
  Seconds sum;
  const LinkCalibration* calibration = nullptr;  ///< Of the narrowest edge.
  void add(const Path& path) { add_sized(at_size(path, message)); }
  void add_sized(const Path& edge) {
    if (edge.bandwidth < bandwidth) calibration = edge.calibration;
    bandwidth = std::min(bandwidth, edge.bandwidth);
    longest = std::max(longest, edge.latency);
    sum += edge.latency;
  }
  /// Measured time over closed form.
  double factor(CollectiveKind kind, std::size_t members) const {
    return calibration == nullptr ? 1 : calibration->factor(kind, static_cast<int>(members));
  }
};

/// The paths of a ring's edges; of a chain all but the closing one.
std::vector<Path> paths_along(Group group, const PathFunction& path, bool closed) {
  std::vector<Path> paths;
  paths.reserve(group.size());
  for (std::size_t i = 0; i + 1 < group.size(); ++i) paths.push_back(path(group[i], group[i + 1]));
  if (closed) paths.push_back(path(group.back(), group.front()));
  return paths;
}

Bottleneck along(std::span<const Path> paths, Bytes message) {
  Bottleneck result(message);
  for (const Path& path : paths) result.add(path);
  return result;
}

Bottleneck over_pairs(Group group, const PathFunction& path, Bytes message) {
  Bottleneck result(message);
  for (const DeviceId a : group) {
    for (const DeviceId b : group) {
      if (a != b) result.add(path(a, b));
    }
  }
  return result;
}

/// What a flow of `bytes` in messages of `message` bytes takes beyond bytes / path bandwidth and
/// the latency of each message; negative for messages so short that latency hides their bytes.
Seconds slower_messages(const Path& path, Bytes bytes, Bytes message) {
  return bytes / at_size(path, message).bandwidth - bytes / path.bandwidth;
}

/// Steps of the ring algorithm.
int ring_steps(CollectiveKind kind, std::size_t members) {
  const int steps = static_cast<int>(members) - 1;
  return kind == CollectiveKind::all_reduce ? 2 * steps : steps;
}

/// The edges of a closed ring for messages of that size.
std::vector<RingEdge> ring_edges(std::span<const Path> paths, Bytes message) {
  std::vector<RingEdge> edges;
  edges.reserve(paths.size());
  for (const Path& path : paths) {
    const Path edge = at_size(path, message);
    edges.push_back({message / edge.bandwidth, edge.latency});
  }
  return edges;
}

/// Time of one ring in group order.
Seconds single_ring_time(CollectiveKind kind, Group group, Bytes bytes, const PathFunction& path) {
  const Bytes step = bytes / static_cast<double>(group.size());
  const std::vector<Path> paths = paths_along(group, path, true);
  if (const auto way = fastest_way(kind, group.size(), paths, bytes)) {
    return way->latency + way->transmission;
  }
  return along(paths, step).factor(kind, group.size()) *
         ring_duration(ring_edges(paths, step), ring_steps(kind, group.size()));
}

/// One message on the path between the devices.
FlowEdge message_flow(DeviceId source, DeviceId destination, Bytes bytes, const Path& path) {
  FlowEdge flow{source, destination, bytes, {}};
  if (path.calibration == nullptr) return flow;
  flow.extra_latency =
      at_size(path, bytes).latency - path.latency + slower_messages(path, bytes, bytes);
  return flow;
}

/// Multiplies the time of a flow that runs alone: its bytes and all of its latency. The path's own
/// latency is paid by the flow itself, so that a factor below one leaves at least that.
void stretch(FlowEdge& flow, double factor, const Path& path) {
  flow.bytes *= factor;
  flow.extra_latency = factor * (flow.extra_latency + path.latency) - path.latency;
}

/// Every two members have a link of their own.
bool is_mesh(Group group, const PathFunction& path) {
  return std::all_of(group.begin() + 1, group.end(),
                     [&](DeviceId device) { return path(group.front(), device).mesh; });
}

/// Every member sends every other its p-th at once, an all-reduce twice: as much over each link as
/// the p - 1 rings without a common edge that a library lays over a mesh.
std::vector<FlowEdge> exchange_in_mesh(CollectiveKind kind, Group group, Bytes bytes,
                                       const PathFunction& path) {
  const Bytes message = bytes / static_cast<double>(group.size());
  const double phases = kind == CollectiveKind::all_reduce ? 2 : 1;
  const double factor = over_pairs(group, path, message).factor(kind, group.size());
  std::vector<FlowEdge> flows;
  flows.reserve(group.size() * (group.size() - 1));
  for (const DeviceId source : group) {
    for (const DeviceId destination : group) {
      if (source == destination) continue;
      const Path edge = path(source, destination);
      FlowEdge flow = message_flow(source, destination, message, edge);
      flow.bytes *= phases;
      flow.extra_latency = phases * (flow.extra_latency + edge.latency) - edge.latency;
      if (factor != 1) stretch(flow, factor, edge);
      flows.push_back(flow);
    }
  }
  return flows;
}

/// Of flows that share no link.
Seconds longest(const std::vector<FlowEdge>& flows, const PathFunction& path) {
  Seconds most;
  for (const FlowEdge& flow : flows) {
    const Path edge = path(flow.source, flow.destination);
    most = std::max(most, flow.bytes / edge.bandwidth + edge.latency + flow.extra_latency);
  }
  return most;
}

using Rings = std::vector<std::vector<DeviceId>>;

/// The pipeline that takes the place of a group's rings between nodes, if there is one.
std::optional<Pipeline> pipeline_of(CollectiveKind kind, const Rings& rings, Bytes bytes,
                                    const PathFunction& path) {
  const std::vector<DeviceId>& ring = rings.front();
  if (path(ring.back(), ring.front()).calibration == nullptr) return std::nullopt;
  return fastest_pipeline(kind, paths_along(ring, path, true), rings.size(), bytes);
}

/// The pipeline on the edges of the rings, which use the same ports and adapters. What a member
/// sends to others of its node shares its port, so that it takes as long as all of it.
void add_pipeline_flows(const Pipeline& pipeline, const Rings& rings, const PathFunction& path,
                        std::vector<FlowEdge>& flows) {
  const double share = 1 / static_cast<double>(rings.size());
  for (const std::vector<DeviceId>& ring : rings) {
    const std::vector<Path> paths = paths_along(ring, path, true);
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const Path& edge = paths[i];
      const bool between = edge.kind == PathClass::network;
      const Bytes bytes = share * (between ? pipeline.between : pipeline.inside);
      const Seconds busy = (between ? bytes : pipeline.inside) / edge.bandwidth;
      flows.push_back({ring[i], ring[(i + 1) % ring.size()], bytes,
                       std::max(Seconds{}, pipeline.time - busy - edge.latency)});
    }
  }
}

Seconds ring_time(CollectiveKind kind, Group group, Bytes bytes, const PathFunction& path) {
  if (group.size() < 2) return {};
  if (kind == CollectiveKind::broadcast) {
    const Bottleneck chain = along(paths_along(group, path, false), bytes);
    return chain.factor(kind, group.size()) * (bytes / chain.bandwidth + chain.sum);
  }
  if (is_mesh(group, path)) {
    return longest(exchange_in_mesh(kind, group, bytes, path), path);
  }
  const auto rings = nic_rings(group, path);
  if (const auto way = pipeline_of(kind, rings, bytes, path)) return way->time;
  Seconds longest;
  for (const std::vector<DeviceId>& ring : rings) {
    longest = std::max(
        longest, single_ring_time(kind, ring, bytes / static_cast<double>(rings.size()), path));
  }
  return longest;
}

Seconds tree_time(CollectiveKind kind, Group group, Bytes bytes, const PathFunction& path) {
  if (group.size() < 2) return {};
  const Bottleneck pairs = over_pairs(group, path, bytes);
  const double depth = static_cast<double>(std::bit_width(group.size() - 1));  // ceil(log2 p)
  const double members = static_cast<double>(group.size());
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2 * (bytes / pairs.bandwidth) + 2 * depth * pairs.longest;
    case CollectiveKind::broadcast:
      return bytes / pairs.bandwidth + depth * pairs.longest;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
      return (members - 1) / members * (bytes / pairs.bandwidth) + depth * pairs.longest;
    case CollectiveKind::all_to_all:
      break;
  }
  ORRERY_CHECK(false, "no tree for collective {}", static_cast<int>(kind));
  return {};
}

/// 0, 1, -1, 2, -2, ... modulo an even size: over all places that a ring begins at, every ordered
/// pair of members follows one another once, so that the rings use each link of a mesh once.
/// [Williams 1949, row-complete Latin squares]
std::size_t zigzag(std::size_t i, std::size_t size) {
  return i % 2 == 1 ? (i + 1) / 2 : (size - i / 2) % size;
}

double peer_bytes(std::span<const double> bytes_per_peer, Bytes bytes, std::size_t members,
                  std::size_t from, std::size_t to) {
  if (bytes_per_peer.empty()) return bytes.value / static_cast<double>(members * members);
  return bytes_per_peer[from * members + to];
}

Seconds all_to_all_time(Group group, Bytes bytes, const PathFunction& path,
                        std::span<const double> bytes_per_peer) {
  std::vector<Seconds> sent(group.size());
  std::vector<Seconds> received(group.size());
  Seconds latency;
  Seconds widest;  // Of what goes over a link of a mesh.
  Bottleneck narrowest{Bytes{}};
  for (std::size_t i = 0; i < group.size(); ++i) {
    for (std::size_t j = 0; j < group.size(); ++j) {
      const double volume = peer_bytes(bytes_per_peer, bytes, group.size(), i, j);
      if (i == j || volume <= 0) continue;
      const Path edge = at_size(path(group[i], group[j]), Bytes{volume});
      narrowest.add_sized(edge);
      const Seconds time = Bytes{volume} / edge.bandwidth;
      if (edge.mesh) {
        widest = std::max(widest, time);  // beside all others
      } else {
        sent[i] += time;
        received[j] += time;
      }
      latency = std::max(latency, edge.latency);
    }
  }
  const Seconds busiest = std::max({widest, *std::max_element(sent.begin(), sent.end()),
                                    *std::max_element(received.begin(), received.end())});
  return narrowest.factor(CollectiveKind::all_to_all, group.size()) * (latency + busiest);
}

/// Members by node, in the order of first appearance. Two devices share a node when their path
/// leaves no node: neither through the network nor through the hosts' staging.
std::vector<std::vector<DeviceId>> by_node(Group group, const PathFunction& path) {
  std::vector<std::vector<DeviceId>> nodes;
  for (const DeviceId device : group) {
    const auto same = [&](const std::vector<DeviceId>& node) {
      const PathClass kind = path(node.front(), device).kind;
      return kind != PathClass::network && kind != PathClass::host_staged;
    };
    const auto node = std::find_if(nodes.begin(), nodes.end(), same);
    if (node == nodes.end()) {
      nodes.push_back({device});
    } else {
      node->push_back(device);
    }
  }
  return nodes;
}

Seconds hierarchical_time(CollectiveKind kind, Group group, Bytes bytes, const PathFunction& path) {
  const std::vector<std::vector<DeviceId>> nodes = by_node(group, path);
  const auto inside = [&](CollectiveKind phase) {
    Seconds longest;
    for (const std::vector<DeviceId>& node : nodes) {
      longest = std::max(longest, ring_time(phase, node, bytes, path));
    }
    return longest;
  };
  std::size_t slices = group.size();
  for (const std::vector<DeviceId>& node : nodes) slices = std::min(slices, node.size());
  if (kind == CollectiveKind::broadcast) slices = 1;
  Seconds between;
  for (std::size_t slice = 0; slice < slices; ++slice) {
    std::vector<DeviceId> members;
    for (const std::vector<DeviceId>& node : nodes) members.push_back(node[slice]);
    between =
        std::max(between, ring_time(kind, members, bytes / static_cast<double>(slices), path));
  }
  switch (kind) {
    case CollectiveKind::all_reduce:
      return inside(CollectiveKind::reduce_scatter) + between + inside(CollectiveKind::all_gather);
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather:
    case CollectiveKind::broadcast:
      return inside(kind) + between;
    case CollectiveKind::all_to_all:
      break;
  }
  ORRERY_CHECK(false, "no hierarchy for collective {}", static_cast<int>(kind));
  return {};
}

std::vector<FlowEdge> all_to_all_flows(Group group, Bytes bytes, const PathFunction& path,
                                       std::span<const double> bytes_per_peer) {
  std::vector<FlowEdge> flows;
  Bottleneck narrowest{Bytes{}};
  for (std::size_t i = 0; i < group.size(); ++i) {
    for (std::size_t j = 0; j < group.size(); ++j) {
      const double volume = peer_bytes(bytes_per_peer, bytes, group.size(), i, j);
      if (i == j || volume <= 0) continue;
      const Path edge = path(group[i], group[j]);
      narrowest.add_sized(at_size(edge, Bytes{volume}));
      flows.push_back(message_flow(group[i], group[j], Bytes{volume}, edge));
    }
  }
  const double factor = narrowest.factor(CollectiveKind::all_to_all, group.size());
  if (factor != 1) {
    for (FlowEdge& flow : flows) stretch(flow, factor, path(flow.source, flow.destination));
  }
  return flows;
}

/// Adds the flows of one ring, or of a chain, in group order.
void add_ring_flows(CollectiveKind kind, Group group, Bytes bytes, const PathFunction& path,
                    std::vector<FlowEdge>& flows) {
  const bool chain = kind == CollectiveKind::broadcast;
  const Bytes message = chain ? bytes : bytes / static_cast<double>(group.size());
  const std::vector<Path> paths = paths_along(group, path, !chain);
  if (const auto way = chain ? std::nullopt : fastest_way(kind, group.size(), paths, bytes)) {
    for (std::size_t i = 0; i < paths.size(); ++i) {
      flows.push_back(
          {group[i], group[(i + 1) % group.size()], way->carried, way->latency - paths[i].latency});
    }
    return;
  }
  const Bottleneck edges = along(paths, message);
  const double factor = edges.factor(kind, group.size());
  const int steps = ring_steps(kind, group.size());
  const Bytes carried = chain ? bytes : steps / static_cast<double>(group.size()) * bytes;
  const Seconds latency = chain ? edges.sum : ring_latency(ring_edges(paths, message), steps);
  flows.reserve(flows.size() + paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const DeviceId next = group[(i + 1) % group.size()];
    const Path& edge = paths[i];
    flows.push_back({group[i], next, carried, std::max(Seconds{}, latency - edge.latency)});
    if (edge.calibration != nullptr) {
      flows.back().extra_latency += slower_messages(edge, carried, message);
    }
    if (factor != 1) stretch(flows.back(), factor, edge);
  }
}

void check_peers(CollectiveKind kind, std::size_t members, std::span<const double> bytes_per_peer) {
  ORRERY_CHECK(kind != CollectiveKind::all_to_all || bytes_per_peer.empty() ||
                   bytes_per_peer.size() == members * members,
               "{} members, bytes for {} pairs", members, bytes_per_peer.size());
}

}  // namespace

std::vector<std::vector<DeviceId>> nic_rings(Group group, const PathFunction& path) {
  std::vector<std::vector<DeviceId>> alone = {{group.begin(), group.end()}};
  std::vector<NodeMembers> nodes;
  std::vector<NodeId> seen;
  int last_nic = -1;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const Path edge = path(group[i], group[(i + 1) % group.size()]);
    if (!edge.source_node.valid() || edge.source_nic < 0) return alone;
    if (seen.empty() || seen.back() != edge.source_node) {
      if (!nodes.empty() && nodes.back().starts.size() < 2) return alone;
      nodes.push_back({i, {}});
      seen.push_back(edge.source_node);
      last_nic = -1;
    }
    if (edge.mesh) nodes.back().mesh = true;
    if (edge.source_nic != last_nic) nodes.back().starts.push_back(i - nodes.back().first);
    last_nic = edge.source_nic;
  }
  std::size_t count = group.size();
  for (const NodeMembers& node : nodes) count = std::min(count, node.starts.size());
  if (nodes.size() < 2 || count < 2) return alone;
  std::sort(seen.begin(), seen.end());  // A node that the ring comes back to would count twice.
  if (std::adjacent_find(seen.begin(), seen.end()) != seen.end()) return alone;
  std::vector<std::vector<DeviceId>> rings(count);
  for (std::size_t ring = 0; ring < count; ++ring) {
    rings[ring].reserve(group.size());
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const NodeMembers& node = nodes[n];
      const std::size_t past = n + 1 < nodes.size() ? nodes[n + 1].first : group.size();
      const std::size_t size = past - node.first;
      const std::size_t start = node.starts[ring * node.starts.size() / count];
      for (std::size_t i = 0; i < size; ++i) {
        const std::size_t place = node.mesh ? zigzag(i, size) : i;
        rings[ring].push_back(group[node.first + (start + place) % size]);
      }
    }
  }
  return rings;
}

Path at_size(const Path& path, Bytes message) {
  if (path.calibration == nullptr || path.calibration->segments.empty()) return path;
  const LinkCalibration::Segment& segment = path.calibration->segment(message);
  Path sized = path;
  sized.latency = segment.latency;
  const bool narrower = path.bandwidth < path.calibration->wire_bandwidth;
  sized.bandwidth = narrower ? std::min(path.bandwidth, segment.bandwidth) : segment.bandwidth;
  return sized;
}

FlowEdge point_to_point_flow(DeviceId source, DeviceId destination, Bytes bytes,
                             const PathFunction& path) {
  return message_flow(source, destination, bytes, path(source, destination));
}

bool takes_rings(CollectiveKind kind, Group group, Bytes bytes, const PathFunction& path) {
  return group.size() < 2 ||
         (!is_mesh(group, path) && !pipeline_of(kind, nic_rings(group, path), bytes, path));
}

std::vector<FlowEdge> ring_step_flows(CollectiveKind kind, Group group, Bytes bytes,
                                      const PathFunction& path) {
  if (group.size() < 2) return {};
  const Bytes message = bytes / static_cast<double>(group.size());
  const std::vector<Path> paths = paths_along(group, path, true);
  const double factor = along(paths, message).factor(kind, group.size());
  std::vector<FlowEdge> flows;
  flows.reserve(paths.size());
  if (const auto way = fastest_way(kind, group.size(), paths, bytes)) {
    const double steps = ring_steps(kind, group.size());
    for (std::size_t i = 0; i < group.size(); ++i) {
      flows.push_back({group[i], group[(i + 1) % group.size()], way->carried / steps,
                       std::max(Seconds{}, way->latency / steps - paths[i].latency)});
    }
    return flows;
  }
  for (std::size_t i = 0; i < group.size(); ++i) {
    const DeviceId next = group[(i + 1) % group.size()];
    const Path& edge = paths[i];
    flows.push_back(message_flow(group[i], next, message, edge));
    if (factor != 1) stretch(flows.back(), factor, edge);
  }
  return flows;
}

std::vector<FlowEdge> collective_flows(CollectiveKind kind, Group group, Bytes bytes,
                                       const PathFunction& path,
                                       std::span<const double> bytes_per_peer) {
  check_peers(kind, group.size(), bytes_per_peer);
  if (group.size() < 2) return {};
  if (kind == CollectiveKind::all_to_all) {
    return all_to_all_flows(group, bytes, path, bytes_per_peer);
  }
  std::vector<FlowEdge> flows;
  if (kind == CollectiveKind::broadcast) {
    add_ring_flows(kind, group, bytes, path, flows);
    return flows;
  }
  if (is_mesh(group, path)) return exchange_in_mesh(kind, group, bytes, path);
  const auto rings = nic_rings(group, path);
  if (const auto way = pipeline_of(kind, rings, bytes, path)) {
    add_pipeline_flows(*way, rings, path, flows);
    return flows;
  }
  for (const std::vector<DeviceId>& ring : rings) {
    add_ring_flows(kind, ring, bytes / static_cast<double>(rings.size()), path, flows);
  }
  return flows;
}

Seconds collective_time(CollectiveKind kind, CollectiveAlgorithm algorithm, Group group,
                        Bytes bytes, const PathFunction& path,
                        std::span<const double> bytes_per_peer) {
  check_peers(kind, group.size(), bytes_per_peer);
  if (group.size() < 2) return {};
  if (kind == CollectiveKind::all_to_all) {
    return all_to_all_time(group, bytes, path, bytes_per_peer);
  }
  switch (algorithm) {
    case CollectiveAlgorithm::ring:
      return ring_time(kind, group, bytes, path);
    case CollectiveAlgorithm::tree:
      return tree_time(kind, group, bytes, path);
    case CollectiveAlgorithm::hierarchical:
      return hierarchical_time(kind, group, bytes, path);
  }
  ORRERY_CHECK(false, "no algorithm {}", static_cast<int>(algorithm));
  return {};
}

Seconds point_to_point_time(DeviceId source, DeviceId destination, Bytes bytes,
                            const PathFunction& path) {
  if (source == destination) return {};
  const Path edge = at_size(path(source, destination), bytes);
  return edge.latency + bytes / edge.bandwidth;
}

std::vector<DeviceId> ring_order(std::span<const DeviceId> devices,
                                 const std::function<NodeId(DeviceId)>& node_of) {
  std::vector<std::pair<NodeId, std::vector<DeviceId>>> nodes;
  for (const DeviceId device : devices) {
    const NodeId node = node_of(device);
    auto place = std::find_if(nodes.begin(), nodes.end(),
                              [&](const auto& entry) { return entry.first == node; });
    if (place == nodes.end()) place = nodes.insert(nodes.end(), {node, {}});
    place->second.push_back(device);
  }
  std::vector<DeviceId> order;
  order.reserve(devices.size());
  for (const auto& [node, members] : nodes) {
    order.insert(order.end(), members.begin(), members.end());
  }
  return order;
}

}  // namespace orrery::models
