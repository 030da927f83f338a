// Search times, the evaluator a closed form. Run by hand on a release build:
//
//   search_bench [PLANNER...]          of every planner, on the same clusters
//   search_bench --papers [PLANNER...] of those whose papers print times, as these measured
//
// The same clusters: nodes of four GPUs, two types, llama2_13b with as many layers as there is
// memory for; 240: mixed_cluster(240) and llama_30b. Papers measured on other machines:
//   AutoHet, V-B: 1.23 to 159.12 s with SCIP, up to 64 simulated GPUs of three types (which numbers
//   of GPUs lie between is not in the text);
//   HexiScale, Figure 9: below 120 s on 12 cores for 50 rounds;
//   Metis, 5.4: 4 to 64 GPUs, T4 and V100, GPT-3. Layers and widths as in
//   models/library/models/metis_gpt_*.yaml (Table 2 gives parameters only, and none for 64 GPUs:
//   the largest); the batch is not printed in the paper, here 128.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "planners/catalog.h"
#include "tests/planners/support.h"

namespace {

using namespace orrery;
using namespace orrery::planners;

/// What a search is measured on, with the seconds that are wanted and those of the paper.
struct Case {
  models::Cluster cluster;
  ir::ModelShape shape;
  std::int64_t batch;
  std::int64_t sequence;
  Options options = {};
  const char* target = "-";
  const char* paper = "-";
};

void print_head() {
  fmt::print("{:>6} {:16} {:12} {:>9} {:>7} {:>8} {:>10} {:>10} {:16} {}\n", "GPUs", "planner",
             "model", "seconds", "target", "paper", "plans", "work", "of", "estimate");
}

void measure(const std::string& planner, const Case& on) {
  const World world(on.cluster, on.shape, on.batch, on.sequence);
  const auto start = std::chrono::steady_clock::now();
  const PlannerResult result = run_planner(planner.c_str(), world.input(), on.options);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  const SearchReport& report = result.report;
  fmt::print("{:>6} {:16} {:12} {:>9.2f} {:>7} {:>8} {:>10} {:>10} {:16} {}{}\n",
             world.cluster.size(), planner, on.shape.name, wall.count(), on.target, on.paper,
             report.plans_examined, report.work, report.work_unit,
             report.estimate ? fmt::format("{:.3f} s: {}", report.estimate->value, report.chosen)
                             : "infeasible",
             report.complete ? "" : ", not complete");
  std::fflush(stdout);
}

/// Half of the GPUs of either type.
models::Cluster halves(int gpus, Machines first, Machines second, double between_gbps) {
  first.gpus = second.gpus = std::min(4, gpus / 2);
  first.machines = second.machines = gpus / 2 / first.gpus;
  return make_cluster({first, second}, between_gbps);
}

/// A100, H800 and H20 on nodes of at most 8; the first type takes what is left over.
models::Cluster thirds(int gpus) {
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
  models::Cluster cluster = make_cluster(machines, 50);
  for (models::Node& node : cluster.nodes) {  // One GPU type for equal machines.
    for (int& type : node.gpu_types) {
      const std::string& name = cluster.gpu_types[type].name;
      const auto first = std::find_if(cluster.gpu_types.begin(), cluster.gpu_types.end(),
                                      [&](const models::GpuType& gpu) { return gpu.name == name; });
      type = static_cast<int>(first - cluster.gpu_types.begin());
    }
  }
  models::seal(cluster);
  return cluster;
}

std::vector<std::pair<std::string, Case>> cases_of_papers() {
  std::vector<std::pair<std::string, Case>> all;
  ir::ModelShape gpt = worlds::llama(32, 4096, 32, 32, 10922, 32000);
  gpt.name = "gpt3_6.7b";
  for (const int gpus : {4, 8, 16, 32, 64}) {
    for (const ir::ModelShape& shape : {small_model(24), gpt}) {
      all.push_back({"autohet",
                     {thirds(gpus),
                      shape,
                      256,
                      2048,
                      {},
                      gpus == 64 ? "1.6" : "-",
                      gpus == 4    ? "1.23"
                      : gpus == 64 ? "159.12"
                                   : "-"}});
    }
  }
  for (const ir::ModelShape& shape : {llama2_13b(), llama_30b()}) {
    all.push_back({"autohet", {mixed_cluster(240), shape, 1024, 2048}});
    for (const int gpus : {64, 128, 192, 240, 256, 320}) {
      all.push_back(
          {"hexiscale", {mixed_cluster(gpus), shape, 1024, 4096, {{"rounds", "50"}}, "5", "120"}});
    }
  }
  struct Metis {
    int gpus, layers, hidden;
    const char* seconds;
  };
  for (const Metis& row :
       {Metis{4, 24, 2048, "0.1"}, Metis{8, 32, 2560, "0.5"}, Metis{16, 32, 4096, "1.7"},
        Metis{32, 48, 5120, "58.9"}, Metis{64, 48, 5120, "600"}}) {
    const int heads = row.hidden / 128;
    ir::ModelShape shape =
        worlds::llama(row.layers, row.hidden, heads, heads, 4 * row.hidden, 32000);
    shape.name = "gpt";
    all.push_back({"metis",
                   {halves(row.gpus, {"T4", 65, 16, 4, 12}, {"V100", 125, 16, 4, 150}, 2),
                    shape,
                    128,
                    1024,
                    {{"default_budget", "0"}},
                    "-",
                    row.seconds}});
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const bool papers = argc > 1 && std::string(argv[1]) == "--papers";
  const std::vector<std::string> wanted(argv + (papers ? 2 : 1), argv + argc);
  const auto asked = [&](const std::string& planner) {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), planner) != wanted.end();
  };
  print_head();
  if (papers) {
    for (const auto& [planner, on] : cases_of_papers()) {
      if (asked(planner)) measure(planner, on);
    }
    return 0;
  }
  for (const int gpus : {4, 8, 16, 32, 64, 240}) {
    const Case on =
        gpus == 240 ? Case{mixed_cluster(240), llama_30b(), 1024, 4096}
                    : Case{halves(gpus, {"A100", 312, 80, 4, 200}, {"V100", 125, 32, 4, 100}, 5),
                           llama2_13b(gpus == 4 ? 8 : 0), 128, 4096};
    for (const PlannerEntry* entry : catalog()) {
      if (asked(entry->name)) measure(entry->name, on);
    }
  }
}
