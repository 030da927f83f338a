#include "experiments/study/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

namespace orrery::experiments {
namespace {

void change_efficiencies(const HardwareChanges& changes, models::Cluster& cluster,
                         config::Diagnostics& diagnostics) {
  std::vector<std::string> known;
  for (models::GpuType& gpu : cluster.gpu_types) {
    known.push_back(gpu.name);
    const auto own = changes.efficiency.find(gpu.name);
    if (own != changes.efficiency.end()) gpu.efficiency = own->second.value;
    gpu.efficiency = std::min(1.0, gpu.efficiency * changes.scale_efficiency);
  }
  for (const auto& [name, value] : changes.efficiency) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    diagnostics.add(value.at, fmt::format("cluster '{}' has no GPU type '{}'", cluster.name, name),
                    config::suggest(name, known, "GPU types"));
  }
}

void scale_links(const HardwareChanges& changes, models::Cluster& cluster) {
  std::set<std::string> between;
  for (const models::Node& node : cluster.nodes) {
    for (const models::Nic& nic : node.nics) between.insert(nic.link);
  }
  for (auto& [name, link] : cluster.links) {
    const double scale = between.contains(name) ? changes.scale_network : changes.scale_node;
    link.bandwidth = scale * link.bandwidth;
    link.latency = changes.scale_latency * link.latency;
  }
  cluster.fabric.leaf_uplink = changes.scale_network * cluster.fabric.leaf_uplink;
  cluster.fabric.leaf_latency = changes.scale_latency * cluster.fabric.leaf_latency;
  cluster.fabric.spine_latency = changes.scale_latency * cluster.fabric.spine_latency;
  cluster.fabric.spine_uplink = changes.scale_network * cluster.fabric.spine_uplink;
  cluster.fabric.core_latency = changes.scale_latency * cluster.fabric.core_latency;
  for (models::PairOverride& pair : cluster.overrides) {
    if (pair.bandwidth) pair.bandwidth = changes.scale_network * *pair.bandwidth;
    if (pair.latency) pair.latency = changes.scale_latency * *pair.latency;
  }
  for (models::HostStaging& staging : cluster.host_staging) {
    staging.bandwidth = changes.scale_network * staging.bandwidth;
    staging.latency = changes.scale_latency * staging.latency;
  }
}

}  // namespace

bool HardwareChanges::none() const {
  return efficiency.empty() && scale_efficiency == 1 && scale_network == 1 && scale_node == 1 &&
         scale_latency == 1;
}

void describe(config::Visitor& v, HardwareChanges& changes) {
  v.title("Hardware");
  v.doc("Changes to the cluster: what a paper leaves open, and how far a result moves with it.");
  v.optional("efficiency", changes.efficiency, "share of peak that blocks reach, by GPU type");
  v.optional("scale_efficiency", changes.scale_efficiency, "factor for all GPU types, on top");
  v.optional("scale_network", changes.scale_network, "factor for bandwidths between nodes");
  v.optional("scale_node", changes.scale_node, "factor for bandwidths inside nodes");
  v.optional("scale_latency", changes.scale_latency, "factor for latencies of all links");
  for (const auto& [name, value] : changes.efficiency) {
    if (v.reading() && !(value.value > 0 && value.value <= 1)) {
      v.problem("efficiency",
                fmt::format("{}: must be above 0 and at most 1, is {}", name, value.value));
    }
  }
  v.positive("scale_efficiency", changes.scale_efficiency);
  v.positive("scale_network", changes.scale_network);
  v.positive("scale_node", changes.scale_node);
  v.positive("scale_latency", changes.scale_latency);
}

void apply(const HardwareChanges& changes, models::Cluster& cluster,
           config::Diagnostics& diagnostics) {
  if (changes.none()) return;
  change_efficiencies(changes, cluster, diagnostics);
  scale_links(changes, cluster);
  models::seal(cluster);
}

}  // namespace orrery::experiments
