// Search time of every planner on mixed clusters of 4 to 64 GPUs and on HexiScale's 240, beside the
// times that papers give for their own searches. Run by hand on a release build:
//
//   search_bench [PLANNER...]
//
// Clusters: nodes of four GPUs, two types, llama2_13b with as many layers as there is memory for;
// 240: mixed_cluster(240) and llama_30b. The evaluator is a closed form. Papers measured on other
// clusters, models and machines: Metis on 4 to 64 GPUs [Metis, section 5.4], AutoHet 1.23 s to
// 159.12 s for its smallest to its largest, 64 GPUs [AutoHet, section V-B], HexiScale below 120 s
// on 12 cores [HexiScale, Figure 9].
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planners/catalog.h"
#include "tests/planners/support.h"

namespace {

using namespace orrery;
using namespace orrery::planners;

/// Seconds that a paper gives for its planner at this many GPUs.
std::string published(const std::string& planner, int gpus) {
  static const std::map<std::pair<std::string, int>, const char*> times = {
      {{"metis", 4}, "0.1"},        {{"metis", 8}, "0.5"},  {{"metis", 16}, "1.7"},
      {{"metis", 32}, "58.9"},      {{"metis", 64}, "600"}, {{"autohet", 64}, "159.12"},
      {{"hexiscale", 240}, "<120"},
  };
  const auto found = times.find({planner, gpus});
  return found == times.end() ? "-" : found->second;
}

void measure(const PlannerEntry& entry, const World& world, int gpus) {
  PlannerInput input = world.input();
  const auto start = std::chrono::steady_clock::now();
  const PlannerResult result = run_planner(entry.name, input);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  fmt::print(
      "{:>6} {:16} {:>9.2f} {:>8} {:>12} {:>12} {:18} {}\n", gpus, entry.name, wall.count(),
      published(entry.name, gpus),
      result.report.estimate ? fmt::format("{:.3f}", result.report.estimate->value) : "infeasible",
      result.report.work, result.report.work_unit, result.report.complete ? "" : "not complete");
  std::fflush(stdout);
}

/// Half of the GPUs of either type.
models::Cluster two_types(int gpus) {
  const int per_node = std::min(4, gpus / 2);
  const int nodes = gpus / 2 / per_node;
  return make_cluster(
      {{"A100", 312, 80, per_node, 200, nodes}, {"V100", 125, 32, per_node, 100, nodes}}, 5);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  fmt::print("paper: Metis 4 to 64 GPUs; AutoHet 1.23 s (fewest GPUs) to 159.12 s (64)\n");
  fmt::print("{:>6} {:16} {:>9} {:>8} {:>12} {:>12} {:18}\n", "GPUs", "planner", "seconds", "paper",
             "estimate s", "work", "of");
  for (const int gpus : {4, 8, 16, 32, 64, 240}) {
    const World world(gpus == 240 ? mixed_cluster(240) : two_types(gpus),
                      gpus == 240 ? llama_30b() : llama2_13b(gpus == 4 ? 8 : 0),
                      gpus == 240 ? 1024 : 128);
    for (const PlannerEntry* entry : catalog()) {
      const bool asked =
          wanted.empty() || std::find(wanted.begin(), wanted.end(), entry->name) != wanted.end();
      if (asked) measure(*entry, world, gpus);
    }
  }
}
