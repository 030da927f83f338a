// One training iteration through sim/flow: data x pipeline x tensor parallel (collapsed: one rank
// per tensor-parallel group), 1F1B, 64 micro-batches, one long ring flow per edge for the
// gradients. CPU time of running the graph; platform and graph are built beforehand.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/base/rng.h"
#include "sim/flow/engine.h"
#include "tests/bench/in_child.h"

namespace orrery::sim {
namespace {

constexpr int kGpusPerNode = 8;
constexpr int kMicroBatches = 64;
constexpr double kForwardSeconds = 10e-3, kActivationBytes = 64e6, kGradientBytes = 2e9;

/// NVLink within a node; PCIe and the node's one NIC between nodes. Links of GPU g: 4g (NVLink up),
/// +1 (down), +2 (PCIe up), +3 (down); then two per node for the NIC.
class NodeRoutes final : public RouteTable {
 public:
  explicit NodeRoutes(int gpus) : nics_(4 * gpus) {}
  void route(int source, int destination, std::vector<LinkId>& links,
             Seconds& latency) const override {
    const int from = source / kGpusPerNode, to = destination / kGpusPerNode;
    if (from == to) {
      links = {{4 * source}, {4 * destination + 1}};
      latency = Seconds{1e-6};
    } else {
      links = {{4 * source + 2}, {nics_ + 2 * from}, {nics_ + 2 * to + 1}, {4 * destination + 3}};
      latency = Seconds{5e-6};
    }
  }

 private:
  int nics_;
};

FlowPlatform platform(int gpus) {
  FlowPlatform result{.links = {}, .hosts = gpus, .routes = std::make_shared<NodeRoutes>(gpus)};
  const auto add = [&](BytesPerSecond bandwidth) { result.links.push_back({bandwidth, {}}); };
  for (int gpu = 0; gpu < gpus; ++gpu)
    for (const double bandwidth : {450e9, 450e9, 64e9, 64e9}) add({bandwidth});
  for (int node = 0; node < 2 * gpus / kGpusPerNode; ++node) add({50e9});
  return result;
}

struct Shape {
  int data, pipeline, tensor;
};

/// Adds 1F1B for every replica and one gradient ring per stage.
class Iteration {
 public:
  Iteration(FlowEngine& engine, Shape shape) : engine_(engine), shape_(shape) {
    const std::size_t ranks = shape.data * shape.pipeline;
    engine.reserve(ranks * (4 * kMicroBatches + 2), ranks * (8 * kMicroBatches + 4));
    for (int replica = 0; replica < shape.data; ++replica) add_replica(replica);
    if (shape.data > 1)
      for (int stage = 0; stage < shape.pipeline; ++stage) add_ring(stage);
  }

 private:
  int host(int replica, int stage) const {
    return (replica * shape_.pipeline + stage) * shape_.tensor;
  }
  void add_replica(int replica) {
    const std::size_t cells = shape_.pipeline * kMicroBatches;
    std::vector<TaskId> forward(cells), backward(cells);
    for (int stage = 0; stage < shape_.pipeline; ++stage) {
      TaskId previous;
      const auto add = [&](std::vector<TaskId>& tasks, int micro_batch, double seconds) {
        const TaskId task = engine_.add_delay(Seconds{seconds * (0.95 + 0.1 * rng_.uniform())},
                                              host(replica, stage));
        if (previous.valid()) engine_.add_dependency(previous, task);
        previous = tasks[cell(stage, micro_batch)] = task;
      };
      const int warm_up = std::min(shape_.pipeline - stage - 1, kMicroBatches);
      for (int i = 0; i < kMicroBatches + warm_up; ++i) {
        if (i < kMicroBatches) add(forward, i, kForwardSeconds);
        if (i >= warm_up) add(backward, i - warm_up, 2 * kForwardSeconds);
      }
      last_.push_back(previous);
    }
    for (int stage = 0; stage < shape_.pipeline; ++stage)
      for (int m = 0; m < kMicroBatches; ++m) {
        if (stage + 1 < shape_.pipeline)
          send(replica, stage, stage + 1, forward[cell(stage, m)], forward[cell(stage + 1, m)]);
        if (stage > 0)
          send(replica, stage, stage - 1, backward[cell(stage, m)], backward[cell(stage - 1, m)]);
      }
  }
  void send(int replica, int from, int to, TaskId before, TaskId after) {
    const TaskId flow =
        engine_.add_flow(host(replica, from), host(replica, to), Bytes{kActivationBytes});
    engine_.add_dependency(before, flow);
    engine_.add_dependency(flow, after);
  }
  void add_ring(int stage) {
    const int n = shape_.data;
    const TaskId ready = engine_.add_barrier();
    for (int replica = 0; replica < n; ++replica) {
      engine_.add_dependency(last_[as_size(replica * shape_.pipeline + stage)], ready);
      const TaskId edge = engine_.add_flow(host(replica, stage), host((replica + 1) % n, stage),
                                           Bytes{2.0 * (n - 1) / n * kGradientBytes},
                                           Seconds{(2 * (n - 1) - 1) * 5e-6});
      engine_.add_dependency(ready, edge);
    }
  }
  static std::size_t cell(int stage, int micro_batch) {
    return as_size(stage * kMicroBatches + micro_batch);
  }

  FlowEngine& engine_;
  Shape shape_;
  Rng rng_{1};
  std::vector<TaskId> last_;  ///< Of each rank.
};

struct Measurement {
  double build_platform, build_graph, run, tasks, simulated, peak_megabytes;
};

/// Hosts with one NIC each.
class NicRoutes final : public RouteTable {
 public:
  void route(int source, int destination, std::vector<LinkId>& links,
             Seconds& latency) const override {
    links = {{2 * source}, {2 * destination + 1}};
    latency = Seconds{5e-6};
  }
};

FlowPlatform nics(int hosts) {
  FlowPlatform result{.links = {}, .hosts = hosts, .routes = std::make_shared<NicRoutes>()};
  for (int link = 0; link < 2 * hosts; ++link) result.links.push_back({BytesPerSecond{50e9}, {}});
  return result;
}

void add_all_reduce(FlowEngine& engine, int n, bool step_by_step) {
  constexpr double kBytes = 0x1p30;
  const int steps = 2 * (n - 1);
  if (!step_by_step) {
    for (int rank = 0; rank < n; ++rank)
      engine.add_flow(rank, (rank + 1) % n, Bytes{steps * kBytes / n}, Seconds{(steps - 1) * 5e-6});
    return;
  }
  engine.reserve(as_size(n * steps), as_size(2 * n * steps));
  for (int step = 0; step < steps; ++step)
    for (int rank = 0; rank < n; ++rank) {
      const TaskId flow = engine.add_flow(rank, (rank + 1) % n, Bytes{kBytes / n});
      if (step == 0) continue;
      engine.add_dependency({flow.value - n}, flow);
      engine.add_dependency({(step - 1) * n + (rank + n - 1) % n}, flow);
    }
}

Measurement measure(FlowPlatform platform, const std::function<void(FlowEngine&)>& build) {
  const double start = bench::process_seconds();
  FlowEngine engine(std::move(platform));
  const double built = bench::process_seconds();
  build(engine);
  const double ready = bench::process_seconds();
  engine.run();
  const double end = bench::process_seconds();
  ORRERY_CHECK(engine.unfinished().empty(), "{} tasks did not end", engine.unfinished().size());
  return {built - start,      ready - built,
          end - ready,        static_cast<double>(engine.tasks()),
          engine.now().value, bench::peak_megabytes()};
}

/// Measures in a fresh process per repetition.
void report(benchmark::State& state, const std::function<Measurement()>& work) {
  double seconds = 0;
  const auto measured =
      bench::measure_in_children<Measurement>(state, work, [&](const Measurement& one) {
        seconds += one.run;
        return one.run;
      });
  if (!measured) return;
  const Measurement& last = *measured;
  state.counters["activities"] = last.tasks;
  state.counters["activities/s"] = last.tasks * static_cast<double>(state.iterations()) / seconds;
  state.counters["simulated_s"] = last.simulated;
  state.counters["platform_s"] = last.build_platform;
  state.counters["graph_s"] = last.build_graph;
  state.counters["peak_MB"] = last.peak_megabytes;
}

void iteration(benchmark::State& state) {
  const Shape shape{static_cast<int>(state.range(0)), static_cast<int>(state.range(1)),
                    static_cast<int>(state.range(2))};
  report(state, [&] {
    return measure(platform(shape.data * shape.pipeline * shape.tensor),
                   [&](FlowEngine& engine) { Iteration(engine, shape); });
  });
}
// Targets: 0.03 CPU s; 3.5 CPU s and 130 MB.
BENCHMARK(iteration)
    ->ArgNames({"data", "pipeline", "tensor"})
    ->Args({15, 4, 4})
    ->Args({256, 8, 8})
    ->Iterations(3)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

void all_reduce(benchmark::State& state) {
  const int devices = static_cast<int>(state.range(0));
  report(state, [&] {
    return measure(nics(devices), [&](FlowEngine& engine) {
      add_all_reduce(engine, devices, state.range(1) != 0);
    });
  });
}
// Targets: 0.05 s; 15 s.
BENCHMARK(all_reduce)
    ->ArgNames({"devices", "step_by_step"})
    ->Args({1024, 0})
    ->Args({1024, 1})
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace orrery::sim

BENCHMARK_MAIN();
