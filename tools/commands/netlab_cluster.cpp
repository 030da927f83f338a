#include "tools/commands/netlab_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "models/spec/topology.h"

namespace orrery::tools {
namespace {

/// A dtype that all GPU types have; none: they have no dtype in common.
std::optional<ir::Dtype> common_dtype(const models::Cluster& cluster) {
  const auto is_common = [&](ir::Dtype dtype) {
    return std::all_of(cluster.gpu_types.begin(), cluster.gpu_types.end(),
                       [&](const models::GpuType& gpu) { return gpu.peak.contains(dtype); });
  };
  if (is_common(ir::Dtype::fp32)) return ir::Dtype::fp32;
  for (const auto& [dtype, peak] : cluster.gpu_types.front().peak) {
    if (is_common(dtype)) return dtype;
  }
  return std::nullopt;
}

/// The speed of the node's slowest device: its ranks share one factor.
double speed_of(const models::Cluster& cluster, const models::Node& node,
                std::optional<ir::Dtype> dtype) {
  double slowest = 0;
  for (const int type : node.gpu_types) {
    const models::GpuType& gpu = cluster.gpu_types[static_cast<std::size_t>(type)];
    const FlopsPerSecond peak = dtype ? gpu.peak.at(*dtype) : gpu.peak.begin()->second;
    const double speed = peak.value * gpu.efficiency;
    slowest = slowest == 0 ? speed : std::min(slowest, speed);
  }
  return slowest;
}

executor::NetlabNode port_of(const models::Cluster& cluster, const models::Node& node) {
  executor::NetlabNode port;
  port.name = node.name;
  port.rate = {};
  Seconds slowest;
  for (const models::Nic& nic : node.nics) {
    const models::LinkClass& link = cluster.links.at(nic.link);
    port.rate += link.bandwidth * link.efficiency;
    slowest = std::max(slowest, link.latency);
  }
  port.latency = 0.5 * (slowest + cluster.fabric.leaf_latency);
  port.devices = static_cast<int>(node.gpu_types.size());
  return port;
}

/// Pairs with an override, and pairs of different leaves where these are further apart.
std::vector<executor::NetlabPair> pairs_of(const models::Cluster& cluster) {
  std::map<std::pair<int, int>, const models::PairOverride*> overrides;  // the last one counts
  for (const models::PairOverride& pair : cluster.overrides) {
    overrides[std::minmax(pair.a.value, pair.b.value)] = &pair;
  }
  std::vector<executor::NetlabPair> pairs;
  const int size = static_cast<int>(cluster.nodes.size());
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      const auto found = overrides.find({a, b});
      const bool apart = cluster.node(NodeId{a}).leaf != cluster.node(NodeId{b}).leaf &&
                         (cluster.fabric.leaf_latency + cluster.fabric.spine_latency).value > 0;
      if (found == overrides.end() && !apart) continue;
      executor::NetlabPair pair{a, b, {}, models::network_latency(cluster, NodeId{a}, NodeId{b})};
      if (found != overrides.end()) {
        pair.rate = found->second->bandwidth;
        // As the simulator does: never less than NICs and fabric take.
        pair.latency = std::max(*pair.latency, found->second->latency.value_or(*pair.latency));
      }
      pairs.push_back(pair);
    }
  }
  return pairs;
}

}  // namespace

executor::NetlabSpec netlab_of(const models::Cluster& cluster) {
  executor::NetlabSpec spec;
  spec.name = cluster.name;
  std::set<int> leaves;
  for (const models::Node& node : cluster.nodes) leaves.insert(node.leaf);
  const bool limited = leaves.size() > 1 && cluster.fabric.leaf_uplink.value > 0;
  if (limited) spec.uplinks.assign(leaves.size(), {cluster.fabric.leaf_uplink});
  const std::optional<ir::Dtype> dtype = common_dtype(cluster);
  for (const models::Node& node : cluster.nodes) {
    executor::NetlabNode port = port_of(cluster, node);
    port.speed = speed_of(cluster, node, dtype);
    if (limited) {
      port.uplink = static_cast<int>(std::distance(leaves.begin(), leaves.find(node.leaf)));
    }
    spec.nodes.push_back(port);
  }
  spec.pairs = pairs_of(cluster);
  return spec;
}

std::vector<std::string> netlab_differences(const models::Cluster& cluster) {
  std::vector<std::string> differences;
  for (const models::Node& node : cluster.nodes) {
    if (node.nics.size() > 1) {
      differences.push_back(fmt::format("node '{}': its {} NICs are one port of their sum",
                                        node.name, node.nics.size()));
    }
    if (node.gpu_types.size() > 1) {
      differences.push_back(
          fmt::format("node '{}': links between its {} devices are this machine's own", node.name,
                      node.gpu_types.size()));
    }
    const std::set<int> types(node.gpu_types.begin(), node.gpu_types.end());
    if (types.size() > 1) {
      differences.push_back(
          fmt::format("node '{}': all its devices are as slow as its slowest", node.name));
    }
  }
  if (!cluster.host_staging.empty()) {
    differences.emplace_back("host staging between vendors is not emulated");
  }
  return differences;
}

}  // namespace orrery::tools
