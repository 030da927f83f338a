// Search time of autohet on 4 to 64 GPUs, beside what the paper prints (V-B: 1.23 to 159.12 s with
// SCIP, up to 64 simulated GPUs; which numbers of GPUs lie between is not in the text) and DESIGN's
// target. Run by hand on a release build: autohet_bench [option=value ...]. Mixes of the paper's
// types in thirds, on nodes of at most 8; the models are GPT-3 6.7B and small; then the 240 GPUs of
// four types on which all planners are compared. The evaluator is a closed form.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/planners/support.h"

namespace {

using namespace orrery;
using namespace orrery::planners;

/// A100, H800 and H20 on nodes of at most 8; the third type takes what is left over.
models::Cluster mix(int gpus) {
  std::vector<Machines> machines;
  const auto add = [&](const Machines& like, int count) {
    for (; count > 0; count -= 8) {
      machines.push_back(like);
      machines.back().gpus = std::min(count, 8);
    }
  };
  const int third = gpus / 4 * 3 / 2 / 2;
  add({"A100", 171.6, 80, 8, 300, 1}, gpus - 2 * third);
  add({"H800", 445, 80, 8, 200, 1}, third);
  add({"H20", 103.6, 95.6, 8, 450, 1}, third);
  // One GPU type for equal machines.
  models::Cluster cluster = make_cluster(machines, 50);
  for (models::Node& node : cluster.nodes) {
    for (int& type : node.gpu_types) {
      int first = 0;
      while (cluster.gpu_types[static_cast<std::size_t>(first)].name !=
             cluster.gpu_types[static_cast<std::size_t>(type)].name) {
        ++first;
      }
      type = first;
    }
  }
  models::seal(cluster);
  return cluster;
}

void measure(models::Cluster cluster, const ir::ModelShape& shape, std::int64_t batch,
             const Options& options, const char* target, const char* paper) {
  const World world(std::move(cluster), shape, batch, 2048);
  const auto start = std::chrono::steady_clock::now();
  const PlannerResult result = run_planner("autohet", world.input(), options);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  fmt::print("{:>5} {:>10} {:>8.3f} {:>7} {:>7} {:>10} {:>6} {:>5}  {}\n", world.cluster.size(),
             shape.name, wall.count(), target, paper, result.report.work,
             result.report.plans_examined, result.report.complete ? "yes" : "no",
             result.report.estimate
                 ? fmt::format("{:.3f} s, {}", result.report.estimate->value, result.report.chosen)
                 : "infeasible");
  for (const std::string& note : result.report.notes) fmt::print("        {}\n", note);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const auto equals = text.find('=');
    if (equals == std::string::npos) continue;
    options.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  fmt::print("{:>5} {:>10} {:>8} {:>7} {:>7} {:>10} {:>6} {:>5}  {}\n", "GPUs", "model", "seconds",
             "target", "paper", "work", "plans", "exact", "plan");
  ir::ModelShape gpt = small_model(32);
  gpt.name = "gpt3_6.7b";
  gpt.hidden = 4096;
  gpt.heads = gpt.kv_heads = 32;
  gpt.head_dim = 128;
  gpt.ffn = 10922;
  for (const int gpus : {4, 8, 16, 32, 64}) {
    const char* target = gpus == 64 ? "1.6" : "-";
    const char* paper = gpus == 4 ? "1.23" : gpus == 64 ? "159.12" : "-";
    for (const ir::ModelShape& shape : {small_model(24), gpt}) {
      measure(mix(gpus), shape, 256, options, target, paper);
    }
  }
  measure(mixed_cluster(240), llama2_13b(), 1024, options, "-", "-");
  measure(mixed_cluster(240), llama_30b(), 1024, options, "-", "-");
}
