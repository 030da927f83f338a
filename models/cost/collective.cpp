#include "models/cost/collective.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "models/base/check.h"

namespace orrery::models {
namespace {

using ir::CollectiveKind;
using Group = std::span<const DeviceId>;

/// Narrowest bandwidth and latencies over a set of edges.
struct Bottleneck {
  BytesPerSecond bandwidth{HUGE_VAL};
  Seconds longest;
  Seconds sum;
  void add(const Path& path) {
    bandwidth = std::min(bandwidth, path.bandwidth);
    longest = std::max(longest, path.latency);
    sum += path.latency;
  }
};

/// The ring's edges; of a chain all but the closing one.
Bottleneck along(Group group, const PathFunction& path, bool closed) {
  Bottleneck result;
  for (std::size_t i = 0; i + 1 < group.size(); ++i) result.add(path(group[i], group[i + 1]));
  if (closed) result.add(path(group.back(), group.front()));
  return result;
}

Bottleneck over_pairs(Group group, const PathFunction& path) {
  Bottleneck result;
  for (const DeviceId a : group) {
    for (const DeviceId b : group) {
      if (a != b) result.add(path(a, b));
    }
  }
  return result;
}

/// Steps of the ring algorithm.
double ring_steps(CollectiveKind kind, std::size_t members) {
  const double steps = static_cast<double>(members) - 1;
  return kind == CollectiveKind::all_reduce ? 2 * steps : steps;
}

Seconds ring_time(CollectiveKind kind, Group group, Bytes bytes, const PathFunction& path) {
  if (group.size() < 2) return {};
  if (kind == CollectiveKind::broadcast) {
    const Bottleneck chain = along(group, path, false);
    return bytes / chain.bandwidth + chain.sum;
  }
  const Bottleneck ring = along(group, path, true);
  const Bytes step = bytes / static_cast<double>(group.size());
  return ring_steps(kind, group.size()) * (step / ring.bandwidth + ring.longest);
}

Seconds tree_time(CollectiveKind kind, Group group, Bytes bytes, const PathFunction& path) {
  if (group.size() < 2) return {};
  const Bottleneck pairs = over_pairs(group, path);
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
  for (std::size_t i = 0; i < group.size(); ++i) {
    for (std::size_t j = 0; j < group.size(); ++j) {
      const double volume = peer_bytes(bytes_per_peer, bytes, group.size(), i, j);
      if (i == j || volume <= 0) continue;
      const Path edge = path(group[i], group[j]);
      const Seconds time = Bytes{volume} / edge.bandwidth;
      sent[i] += time;
      received[j] += time;
      latency = std::max(latency, edge.latency);
    }
  }
  return latency + std::max(*std::max_element(sent.begin(), sent.end()),
                            *std::max_element(received.begin(), received.end()));
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

std::vector<FlowEdge> all_to_all_flows(Group group, Bytes bytes,
                                       std::span<const double> bytes_per_peer) {
  std::vector<FlowEdge> flows;
  for (std::size_t i = 0; i < group.size(); ++i) {
    for (std::size_t j = 0; j < group.size(); ++j) {
      const double volume = peer_bytes(bytes_per_peer, bytes, group.size(), i, j);
      if (i != j && volume > 0) flows.push_back({group[i], group[j], Bytes{volume}, Seconds{}});
    }
  }
  return flows;
}

void check_peers(CollectiveKind kind, std::size_t members, std::span<const double> bytes_per_peer) {
  ORRERY_CHECK(kind != CollectiveKind::all_to_all || bytes_per_peer.empty() ||
                   bytes_per_peer.size() == members * members,
               "{} members, bytes for {} pairs", members, bytes_per_peer.size());
}

}  // namespace

std::vector<FlowEdge> collective_flows(CollectiveKind kind, Group group, Bytes bytes,
                                       const PathFunction& path,
                                       std::span<const double> bytes_per_peer) {
  check_peers(kind, group.size(), bytes_per_peer);
  if (group.size() < 2) return {};
  if (kind == CollectiveKind::all_to_all) return all_to_all_flows(group, bytes, bytes_per_peer);

  const bool chain = kind == CollectiveKind::broadcast;
  const Bottleneck edges = along(group, path, !chain);
  const double steps = ring_steps(kind, group.size());
  const Bytes carried = chain ? bytes : steps / static_cast<double>(group.size()) * bytes;
  const Seconds latency = chain ? edges.sum : steps * edges.longest;
  std::vector<FlowEdge> flows;
  for (std::size_t i = 0; i + (chain ? 1 : 0) < group.size(); ++i) {
    const DeviceId next = group[(i + 1) % group.size()];
    flows.push_back({group[i], next, carried, latency - path(group[i], next).latency});
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
  const Path edge = path(source, destination);
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
