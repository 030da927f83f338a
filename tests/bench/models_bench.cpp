// Small parts that plans and policies call a great many times: a million routes over 16,384 GPUs,
// and gradient synchronization resolved for 256 replicas.
#include <benchmark/benchmark.h>

#include "models/base/rng.h"
#include "models/sharding/gradient.h"
#include "models/spec/library.h"
#include "models/spec/topology.h"

namespace orrery::models {
namespace {

/// Target: 2 s.
void million_routes(benchmark::State& state) {
  config::Diagnostics diagnostics;
  const Library library = load_library(default_library_root(), diagnostics);
  const Cluster cluster = load_cluster("llama3_16384", library, {}, diagnostics);
  diagnostics.raise();
  const Topology topology(cluster);
  const int size = cluster.size();
  for (auto _ : state) {
    double sum = 0;
    for (std::int64_t i = 0; i < 1'000'000; ++i) {
      const DeviceId a{static_cast<int>(i % size)}, b{static_cast<int>(i * 7919 % size)};
      sum += topology.path(a, b).latency.value;
    }
    benchmark::DoNotOptimize(sum);
  }
}
BENCHMARK(million_routes)->Unit(benchmark::kMillisecond);

/// Replicas of degree 8, or of degrees 1, 2, 4 and 8 at random; target: 5 ms.
void synchronize_256_replicas(benchmark::State& state) {
  constexpr std::int64_t kLength = 12'582'919;  // A prime: no degree divides it.
  Rng rng(1);
  Gradients gradients{{{}, kPartial, {}}, {kLength}, RowSlices::joined};
  int next = 0;
  for (int r = 0; r < 256; ++r) {
    const int degree = state.range(0) != 0 ? 1 << rng.integer(0, 3) : 8;
    std::vector<int> owners;
    for (int i = 0; i < degree; ++i) owners.push_back(next++);
    gradients.annotation.subgroups.push_back({std::move(owners), {{0, degree}}});
  }
  for (auto _ : state) benchmark::DoNotOptimize(synchronize_gradients(gradients));
}
BENCHMARK(synchronize_256_replicas)
    ->ArgName("mixed_degrees")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace orrery::models

BENCHMARK_MAIN();
