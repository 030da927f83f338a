// Search time of metis beside the paper's (5.4: 4 to 64 GPUs, T4 and V100, GPT-3), on clusters of
// as many GPUs of both types. Run by hand on a release build:
//   metis_bench [GPUs ...]
// Layers and widths are those of models/library/models/metis_gpt_*.yaml (Table 2 gives parameters
// only, and none for 64 GPUs: the largest); the batch is not printed in the paper, here 128.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <vector>

#include "tests/planners/support.h"

namespace {

using namespace orrery;
using namespace orrery::planners;

struct Row {
  int gpus;
  int layers;
  int hidden;
  double paper_seconds;
};
constexpr Row kRows[] = {{4, 24, 2048, 0.1},
                         {8, 32, 2560, 0.5},
                         {16, 32, 4096, 1.7},
                         {32, 48, 5120, 58.9},
                         {64, 48, 5120, 600}};

void measure(const Row& row) {
  const int node = row.gpus / 2 < 4 ? row.gpus / 2 : 4;
  const int nodes = row.gpus / 2 / node;
  ir::ModelShape shape = small_model(row.layers);
  shape.hidden = row.hidden;
  shape.ffn = 4 * row.hidden;
  shape.head_dim = 128;
  shape.heads = shape.kv_heads = row.hidden / 128;
  const World world(
      make_cluster({{"T4", 65, 16, node, 12, nodes}, {"V100", 125, 16, node, 150, nodes}}, 2),
      shape, 128, 1024);
  const auto start = std::chrono::steady_clock::now();
  const PlannerResult result = run_planner("metis", world.input(), {{"default_budget", "0"}});
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  fmt::print("{:>5} {:>9.2f} {:>9} {:>13} {:>11} {}\n", row.gpus, wall.count(), row.paper_seconds,
             result.report.work, result.report.plans_examined,
             result.report.estimate
                 ? fmt::format("{:.3f} s: {}", result.report.estimate->value, result.report.chosen)
                 : "infeasible");
}

}  // namespace

int main(int argc, char** argv) {
  fmt::print("{:>5} {:>9} {:>9} {:>13} {:>11} {}\n", "GPUs", "seconds", "paper", "nodes", "plans",
             "best plan");
  for (const Row& row : kRows) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted = wanted || std::atoi(argv[i]) == row.gpus;
    if (wanted) measure(row);
  }
}
