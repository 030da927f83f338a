#include "tests/planners/support.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "models/base/check.h"
#include "models/check/validate.h"
#include "models/cost/hexiscale_model.h"
#include "planners/kit/estimate.h"

namespace orrery::planners {

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
      node.gpu_types.assign(static_cast<std::size_t>(m.gpus), type);
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

ir::ModelShape llama2_13b(int layers) {
  ir::ModelShape shape;
  shape.name = "llama2_13b";
  shape.layers = layers > 0 ? layers : 40;
  shape.hidden = 5120;
  shape.heads = 40;
  shape.kv_heads = 40;
  shape.head_dim = 128;
  shape.ffn = 13824;
  shape.vocabulary = 32000;
  return shape;
}

ir::ModelShape llama_30b() {
  ir::ModelShape shape = llama2_13b(60);
  shape.name = "llama_30b";
  shape.hidden = 6656;
  shape.heads = 52;
  shape.kv_heads = 52;
  shape.ffn = 17920;
  return shape;
}

ir::ModelShape small_model(int layers) {
  ir::ModelShape shape = llama2_13b(layers);
  shape.name = "small";
  shape.hidden = 1024;
  shape.heads = 16;
  shape.kv_heads = 16;
  shape.head_dim = 64;
  shape.ffn = 4096;
  return shape;
}

class World::ClosedForm final : public models::Evaluator {
 public:
  explicit ClosedForm(const World& world) : world_(world), estimator_(world.input()) {}
  models::Evaluation evaluate(const ir::Plan& plan) const override {
    models::Evaluation result;
    result.iteration_time = estimator_.estimate(plan);
    result.memory = world_.verdict(plan);
    return result;
  }
  std::string name() const override { return "closed form"; }

 private:
  const World& world_;
  PlanEstimator estimator_;
};

namespace {

/// Stands in while the world builds its own evaluator.
class NoEvaluator final : public models::Evaluator {
 public:
  models::Evaluation evaluate(const ir::Plan&) const override { return {}; }
  std::string name() const override { return "none"; }
};

models::Job make_job(std::int64_t global_batch, std::int64_t sequence_length) {
  models::Job job;
  job.global_batch = global_batch;
  job.sequence_length = sequence_length;
  return job;
}

}  // namespace

World::World(models::Cluster c, const ir::ModelShape& shape, std::int64_t global_batch,
             std::int64_t sequence_length)
    : cluster(std::move(c)),
      topology(cluster),
      job(make_job(global_batch, sequence_length)),
      workload(models::build_workload(shape, sequence_length, job.dtype)),
      evaluator_(std::make_shared<NoEvaluator>()) {
  evaluator_ = std::make_shared<ClosedForm>(*this);
}

PlannerInput World::input(std::uint64_t seed) const {
  PlannerInput result{cluster, topology, workload, job, profile, *evaluator_, {}, seed, 0, nullptr};
  for (const models::Device& device : cluster.devices) result.devices.push_back(device.id);
  return result;
}

ir::MemoryVerdict World::verdict(const ir::Plan& plan) const {
  return models::check_memory(plan, cluster, workload, job, profile);
}

Seconds World::paper_estimate(const ir::Plan& plan) const {
  const models::HexiscaleModel model(
      cluster, workload, [&](DeviceId a, DeviceId b) { return topology.path(a, b); },
      models::HexiscaleOptions::paper());
  return model.estimate(plan).iteration;
}

std::string World::defects(const ir::Plan& plan) const {
  std::string text;
  for (const models::PlanDefect& d : models::validate(plan, cluster, workload, job)) {
    text += d.path + ": " + d.what + "\n";
  }
  return text;
}

PlannerResult run_planner(const char* name, const PlannerInput& input, const Options& options) {
  const PlannerEntry* entry = find_planner(name);
  ORRERY_CHECK(entry != nullptr, "no planner {}", name);
  auto made = entry->make(options);
  const auto* bad = std::get_if<PlannerEntry::BadOption>(&made);
  ORRERY_CHECK(bad == nullptr, "{}: {}", bad->name, bad->what);
  return std::get<std::unique_ptr<Planner>>(made)->plan(input);
}

}  // namespace orrery::planners
