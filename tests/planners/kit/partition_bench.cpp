// Time of one partition of a cluster graph: devices, parts, objective (0 minimize, 1 maximize).
// Targets: 320 devices into 8 to 64 parts in 30 ms, 240 into 15 in 15 ms.
#include <benchmark/benchmark.h>

#include "planners/kit/partition.h"
#include "tests/planners/kit/graphs.h"

namespace orrery::planners {
namespace {

void partition_cluster(benchmark::State& state) {
  Rng rng(1);
  const WeightedGraph graph = testing::cluster_graph(static_cast<int>(state.range(0)), 4, rng);
  PartitionOptions options;
  options.objective = state.range(2) == 0 ? CutObjective::kMinimize : CutObjective::kMaximize;
  const int parts = static_cast<int>(state.range(1));
  for (auto _ : state) benchmark::DoNotOptimize(partition(graph, parts, options, rng));
}
BENCHMARK(partition_cluster)
    ->Unit(benchmark::kMillisecond)
    ->ArgsProduct({{320}, {2, 8, 16, 40, 64}, {0, 1}})
    ->ArgsProduct({{240}, {15}, {0, 1}})
    ->ArgsProduct({{1024}, {16, 128}, {0, 1}});

}  // namespace
}  // namespace orrery::planners

BENCHMARK_MAIN();
