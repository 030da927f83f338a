// Search time of hexiscale on growing mixes of the paper's machines, beside the targets. Run by
// hand on a release build: planner_bench [rounds]. The evaluator is a closed form.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "tests/planners/support.h"

namespace {

using namespace orrery;
using namespace orrery::planners;

void measure(int gpus, const ir::ModelShape& shape, const std::string& rounds) {
  const World world(mixed_cluster(gpus), shape, 1024);
  const auto start = std::chrono::steady_clock::now();
  const PlannerResult result = run_planner("hexiscale", world.input(), {{"rounds", rounds}});
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  const auto* plan = std::get_if<ir::Plan>(&result.outcome);
  fmt::print(
      "{:>6} {:>12} {:>9.2f} {:>9} {:>9} {:>8} {:>10} {:>11}\n", world.cluster.size(), shape.name,
      wall.count(), "5", "120", result.report.plans_examined, result.report.rejected_by_memory,
      plan == nullptr
          ? "infeasible"
          : fmt::format("{:.2f} ({})", result.report.estimate->value, plan->pipelines.size()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string rounds = argc > 1 ? argv[1] : "50";
  fmt::print("hexiscale, {} rounds; paper: below 120 s on 12 cores for 50 rounds (Figure 9)\n",
             rounds);
  fmt::print("{:>6} {:>12} {:>9} {:>9} {:>9} {:>8} {:>10} {:>11}\n", "GPUs", "model", "seconds",
             "target", "paper", "layouts", "no memory", "estimate s");
  for (const int gpus : {64, 128, 192, 240, 256, 320}) {
    measure(gpus, llama2_13b(), rounds);
    measure(gpus, llama_30b(), rounds);
  }
}
