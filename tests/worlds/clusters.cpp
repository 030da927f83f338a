#include "tests/worlds/clusters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery::worlds {

models::Cluster bare_cluster(const std::vector<std::vector<int>>& nodes,
                             std::vector<models::GpuType> types) {
  models::Cluster cluster;
  cluster.gpu_types = std::move(types);
  for (const std::vector<int>& of_node : nodes) {
    models::Node node;
    node.name = fmt::format("node{}", cluster.nodes.size());
    node.gpu_types = of_node;
    cluster.nodes.push_back(node);
    for (const int type : of_node) {
      const std::size_t needed = type + 1;
      if (cluster.gpu_types.size() < needed) cluster.gpu_types.resize(needed);
    }
  }
  models::seal(cluster);
  return cluster;
}

models::Cluster one_node(int devices) { return bare_cluster({std::vector<int>(devices, 0)}); }

models::GpuType round_gpu(const std::string& name) {
  models::GpuType gpu;
  gpu.name = name;
  gpu.peak[ir::Dtype::bf16] = 100_TFLOPS;
  gpu.memory = 80_GiB;
  gpu.memory_bandwidth = 1000_GBps;
  gpu.efficiency = 0.5;
  gpu.memory_efficiency = 0.5;
  return gpu;
}

models::Cluster make_cluster(const ClusterShape& shape) {
  models::Cluster cluster;
  cluster.name = "test";
  models::GpuType gpu;
  gpu.name = "gpu";
  gpu.vendor = "vendor";
  gpu.peak = {{ir::Dtype::bf16, FlopsPerSecond{1e14}}};
  gpu.memory = 80_GiB;
  gpu.memory_bandwidth = BytesPerSecond{1e30};
  gpu.efficiency = 0.5;
  gpu.memory_efficiency = 1;
  gpu.price = DollarsPerSecond{2.0 / 3600};
  cluster.gpu_types = {gpu};
  cluster.links["nvlink"] = {"nvlink", shape.nvlink, shape.latency, 1, false, "test"};
  cluster.links["slot"] = {"slot", shape.pcie, 2 * shape.latency, 1, shape.shared_pcie, "test"};
  cluster.links["nic"] = {"nic", shape.nic, 2 * shape.latency, 1, false, "test"};
  for (int n = 0; n < shape.nodes; ++n) {
    models::Node node;
    node.name = fmt::format("node{}", n);
    node.gpu_types.assign(shape.gpus, 0);
    std::vector<int> all;
    for (int g = 0; g < shape.gpus; ++g) all.push_back(g);
    if (shape.has_nvlink) node.domains = {{all, "nvlink"}};
    node.pcie = {{all, "slot", ""}};
    if (shape.nic_per_gpu) {
      for (int g = 0; g < shape.gpus; ++g) node.nics.push_back({"nic", {g}});
    } else {
      node.nics = {{"nic", {}}};
    }
    cluster.nodes.push_back(node);
  }
  models::seal(cluster);
  return cluster;
}

models::Cluster make_cluster(const std::vector<Machines>& machines, double between_gbps) {
  models::Cluster cluster;
  cluster.name = "test";
  const auto link = [&](double gbps, Seconds latency, bool node_to_node) {
    models::LinkClass result;
    result.name = fmt::format("{}{}GBps", node_to_node ? "net-" : "nvlink-", gbps);
    result.bandwidth = gbps * 1_GBps;
    result.latency = latency;
    cluster.links[result.name] = result;
    return result.name;
  };
  const std::string network = link(between_gbps, 20.0_us, true);
  for (const Machines& m : machines) {
    models::GpuType gpu;
    gpu.name = m.type;
    gpu.vendor = "nvidia";
    gpu.peak[ir::Dtype::bf16] = m.tflops * 1_TFLOPS;
    gpu.memory = m.memory_gib * 1_GiB;
    gpu.memory_bandwidth = 1000_GBps;
    gpu.launch = 10.0_us;
    const int type = static_cast<int>(cluster.gpu_types.size());
    cluster.gpu_types.push_back(gpu);
    for (int i = 0; i < m.machines; ++i) {
      models::Node node;
      node.name = fmt::format("{}-{}", m.type, cluster.nodes.size());
      node.gpu_types.assign(m.gpus, type);
      models::LinkDomain domain;
      for (int g = 0; g < m.gpus; ++g) domain.members.push_back(g);
      domain.link = link(m.inside_gbps, 3.0_us, false);
      node.pcie.push_back({domain.members, domain.link, ""});
      node.domains.push_back(std::move(domain));
      node.nics.push_back({network, {}});
      cluster.nodes.push_back(std::move(node));
    }
  }
  models::seal(cluster);
  return cluster;
}

models::Cluster case_study_cluster() {
  return make_cluster({{"A800", 312, 80, 3, 200, 1},
                       {"RTX4090", 165.2, 24, 3, 32, 1},
                       {"RTX3090", 80, 24, 2, 16, 1}},
                      1);
}

models::Cluster mixed_cluster(int gpus) {
  const auto scaled = [&](int machines) {
    return std::max(1, static_cast<int>(std::lround(machines * gpus / 240.0)));
  };
  const int a800 = scaled(2);
  const int small = 2 * scaled(3);
  const int rtx3090 = scaled(5);
  const int rtx4090 = (gpus - 8 * a800 - 4 * small - 8 * rtx3090) / 8;
  return make_cluster({{"RTX3090", 80, 24, 8, 24, rtx3090},
                       {"RTX3090x4", 80, 24, 4, 24, small},
                       {"RTX4090", 165.2, 24, 8, 32, rtx4090},
                       {"A800", 312, 80, 8, 200, a800}},
                      0.7);
}

}  // namespace orrery::worlds
