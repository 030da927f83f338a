// Time to plan a switch, compared with the targets. Run by hand on a release build from the root of
// the repository: switch_bench [runs]. The least CPU time of the runs; building cluster and
// topology does not count. Columns: GPUs, layers, what, seconds, target, rows, sends, messages, GB
// moved.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string>

#include "models/reshard/reshard_plan.h"
#include "models/spec/library.h"

namespace {

using namespace orrery;
using namespace orrery::models;

struct World {
  Cluster cluster;
  Workload workload;
};

World load(const char* cluster, const char* model) {
  config::Diagnostics diagnostics;
  const Library library = load_library(default_library_root(), diagnostics);
  Job job;
  job.global_batch = 1;
  job.sequence_length = 4096;
  World world{load_cluster(cluster, library, {}, diagnostics),
              load_workload(model, job, library, {}, diagnostics)};
  diagnostics.raise();
  return world;
}

ir::Plan published(const std::string& name) {
  config::Diagnostics diagnostics;
  ir::Plan plan = load_plan("experiments/hetu/plans/" + name + ".yaml", diagnostics);
  diagnostics.raise();
  return plan;
}

/// Equal pipelines of equally wide groups on consecutive devices from `first` on, blocks as evenly
/// as they go.
ir::Plan grid(int pipelines, int stages, int tensor_parallel, int blocks, int first) {
  ir::Plan plan;
  for (int p = 0; p < pipelines; ++p) {
    ir::Pipeline& pipeline = plan.pipelines.emplace_back();
    for (int s = 0; s < stages; ++s) {
      ir::Segment segment;
      segment.first_block = {s * blocks / stages};
      segment.last_block = {(s + 1) * blocks / stages - 1};
      ir::Group group;
      group.tensor_parallel = tensor_parallel;
      for (int i = 0; i < tensor_parallel; ++i) group.devices.push_back({first++});
      segment.groups.push_back(std::move(group));
      pipeline.stages.push_back({{std::move(segment)}});
    }
  }
  return plan;
}

void measure(const World& world, const char* what, const ir::Plan& from, const ir::Plan& to,
             const ReshardOptions& options, double target, int runs) {
  const Topology topology(world.cluster);
  double least = 1e300;
  ReshardPlan plan;
  for (int i = 0; i < runs; ++i) {
    const std::clock_t start = std::clock();
    plan = plan_reshard(from, to, world.cluster, topology, world.workload, options);
    least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  fmt::print("{} {} {} {:.5f} {} {} {} {} {:.0f}\n", world.cluster.size(),
             world.workload.size() - 2, what, least, target, plan.rows.size(), plan.sends.size(),
             plan.messages.size(), sum(plan.moved).value / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 3;
  ReshardOptions options;
  {
    const World hetu = load("hetu", "hetu_32b");
    for (int d = 40; d < 48; ++d) options.lost.push_back({d});
    measure(hetu, "c4-c5", published("c4"), published("c5"), options, 0.02, runs);
  }
  // A node is lost: 113 pipelines of 18 stages instead of 128 of 16 on the nodes that are left, and
  // 254 of 8 stages.
  const World llama = load("llama3_16384", "llama3_405b");
  const int blocks = llama.workload.size();
  const ir::Plan before = grid(128, 16, 8, blocks, 0);
  options.lost.clear();
  for (int d = 0; d < 8; ++d) options.lost.push_back({d});
  measure(llama, "tp8pp16-tp8pp18", before, grid(113, 18, 8, blocks, 8), options, 5, runs);
  measure(llama, "tp8pp16-tp8pp8", before, grid(254, 8, 8, blocks, 8), options, 5, runs);
  measure(llama, "tp8pp16-tp4pp32", before, grid(127, 32, 4, blocks, 8), options, 5, runs);
}
