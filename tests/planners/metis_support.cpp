#include "tests/planners/metis_support.h"

#include <fmt/format.h>

#include "planners/kit/integers.h"

namespace orrery::planners {

ir::Profile synthetic_profile(double t4_speed) {
  ir::ModelLayers model;
  model.model = "synthetic";
  model.parameter_bytes.assign(10, 50400000);
  model.parameter_bytes.front() = 131072000;
  model.parameter_bytes.back() = 130872000;
  model.optimizer_ms = 12.5;
  model.batch_generator_ms = 0.3;
  model.provenance.source = "a formula";
  for (const auto& [gpu, speed] : {std::pair("A100", 10.0), std::pair("T4", t4_speed)}) {
    for (const int tp : {1, 2, 4}) {
      for (const int bs : {1, 2, 4}) {
        ir::LayerProfile p;
        p.gpu = gpu;
        p.tensor_parallel = tp;
        p.micro_batch_size = bs;
        const double f = (0.3 + 0.7 * bs) / (0.2 + 0.8 * tp);
        double sum = 0;
        for (int i = 0; i < 10; ++i) {
          const bool first = i == 0, last = i == 9;
          p.layer_ms.push_back(first  ? speed * 0.05 * f
                               : last ? speed * 0.15 * f
                                      : speed * f * (1 + 0.013 * i));
          p.layer_mb.push_back(first  ? (900.0 + 30 * bs) / tp
                               : last ? (1100.0 + 90 * bs) / tp
                                      : (700.0 + 260 * bs) / tp + 40);
          sum += p.layer_ms.back();
        }
        p.forward_backward_ms = sum * 1.02 + 0.5;
        model.profiles.push_back(std::move(p));
      }
    }
  }
  ir::Profile profile;
  profile.name = "synthetic";
  profile.model_layers.push_back(std::move(model));
  return profile;
}

std::unique_ptr<World> synthetic_world(const std::vector<std::pair<int, int>>& nodes,
                                       std::int64_t batch, double t4_speed) {
  struct Kind {
    const char* name;
    double tflops, gib, inside, outside;
  };
  constexpr Kind kKinds[] = {{"A100", 312, 40, 46, 10}, {"T4", 65, 16, 12, 5}};
  models::Cluster cluster;
  cluster.name = "synthetic";
  const auto link = [&](double gbps) {
    models::LinkClass result;
    result.name = fmt::format("{}GBps", gbps);
    result.bandwidth = gbps * 1_GBps;
    cluster.links[result.name] = result;
    return result.name;
  };
  std::vector<int> position(2, -1);
  for (const auto& [kind, gpus] : nodes) {
    const Kind& k = kKinds[kind];
    int& type = position[kind];
    if (type < 0) {
      type = static_cast<int>(cluster.gpu_types.size());
      models::GpuType gpu;
      gpu.name = k.name;
      gpu.vendor = "nvidia";
      gpu.peak[ir::Dtype::bf16] = k.tflops * 1_TFLOPS;
      gpu.memory = k.gib * 1_GiB;
      gpu.memory_bandwidth = 1000_GBps;
      cluster.gpu_types.push_back(gpu);
    }
    models::Node node;
    node.name = fmt::format("{}-{}", k.name, cluster.nodes.size());
    node.gpu_types.assign(gpus, type);
    models::LinkDomain domain;
    for (int g = 0; g < gpus; ++g) domain.members.push_back(g);
    domain.link = link(k.inside);
    node.pcie.push_back({domain.members, domain.link, ""});
    node.domains.push_back(std::move(domain));
    node.nics.push_back({link(k.outside), {}});
    cluster.nodes.push_back(std::move(node));
  }
  models::seal(cluster);
  auto world = std::make_unique<World>(std::move(cluster), small_model(8), batch, 1024);
  world->profile = synthetic_profile(t4_speed);
  return world;
}

}  // namespace orrery::planners
