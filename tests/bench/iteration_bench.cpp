// One training iteration from plan to run log, against the targets of the design: lowering,
// pricing, simulation, spans, breakdown and memory timeline are timed; process start and platform
// are not. Each repetition runs in a fresh process and reports CPU seconds and peak memory.
//
// tests/bench/run.sh prints the table of targets and what was measured here and, where
// $ORRERY_DATA/prototypes/simgrid/iter.cpp is there, the ratio to that prototype: a hand-written
// task graph of the same shape on bare SimGrid (variant=timer, ar=long), without lowering, prices,
// spans or memory, compiled and run together with this.
#include <benchmark/benchmark.h>

#include <functional>

#include "models/cost/pricer.h"
#include "models/ir/plan.h"
#include "models/lower/lower.h"
#include "models/spec/topology.h"
#include "sim/iteration/iteration.h"
#include "tests/bench/in_child.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim {
namespace {

constexpr int kGpusPerNode = 8, kMicroBatches = 64;
constexpr std::int64_t kSequence = 4096;

/// Nodes with NVLink and one NIC each.
models::Cluster nodes_of(int nodes, int gpus) {
  return make_cluster({.nodes = nodes,
                       .gpus = gpus,
                       .nvlink = BytesPerSecond{450e9},
                       .pcie = BytesPerSecond{64e9},
                       .nic = BytesPerSecond{50e9},
                       .latency = Seconds{1e-6},
                       .nic_per_gpu = false});
}

models::Workload llama_80() {
  return models::build_workload(worlds::llama(80, 8192, 64, 8, 28672, 32000), kSequence,
                                ir::Dtype::bf16);
}

struct Measurement {
  double platform, lower, run, simulated, ops, timers, flows, peak_megabytes;
};

/// Builds the platform, then times `lower` and the run.
Measurement measure(const models::Cluster& cluster, const models::Workload& workload,
                    const std::function<ir::Program(const models::Job&)>& lower,
                    const IterationOptions& options) {
  models::Job job;
  job.sequence_length = kSequence;
  const double start = bench::process_seconds();
  const models::Topology topology(cluster);
  IterationSimulator simulator(cluster, topology);
  const double built = bench::process_seconds();
  const ir::Program program = lower(job);
  const double lowered = bench::process_seconds();
  const IterationResult result =
      simulator.run(program, models::Pricer(cluster, workload, job, ir::Profile{}), options);
  const double end = bench::process_seconds();
  return {built - start,
          lowered - built,
          end - lowered,
          result.iteration_time.value,
          static_cast<double>(program.ops.size()),
          static_cast<double>(result.work.timers),
          static_cast<double>(result.work.flows),
          bench::peak_megabytes()};
}

void report(benchmark::State& state, const std::function<Measurement()>& work) {
  const auto measured = bench::measure_in_children<Measurement>(
      state, work, [](const Measurement& one) { return one.lower + one.run; });
  if (!measured) return;
  const Measurement& last = *measured;
  state.counters["platform_s"] = last.platform;
  state.counters["lower_s"] = last.lower;
  state.counters["run_s"] = last.run;
  state.counters["simulated_s"] = last.simulated;
  state.counters["ops"] = last.ops;
  state.counters["timers"] = last.timers;
  state.counters["flows"] = last.flows;
  state.counters["peak_MB"] = last.peak_megabytes;
}

void iteration(benchmark::State& state) {
  const auto data = static_cast<int>(state.range(0));
  const auto stages = static_cast<int>(state.range(1));
  const auto tensor = static_cast<int>(state.range(2));
  const bool collapsed = state.range(3) == 0;
  report(state, [&] {
    const models::Cluster cluster = nodes_of(data * stages * tensor / kGpusPerNode, kGpusPerNode);
    const models::Workload workload = llama_80();
    PlanShape shape;
    shape.pipelines = data;
    shape.stages = stages;
    shape.tensor_parallel = tensor;
    shape.micro_batches = kMicroBatches;
    const ir::Plan plan = make_plan(shape, workload.size());
    IterationOptions options;
    options.jitter = 0.05;
    return measure(
        cluster, workload,
        [&](const models::Job& job) {
          return models::lower(plan, cluster, workload, job, {.collapsed = collapsed});
        },
        options);
  });
}
// Targets: 0.05 s; 0.2 s; 5 s and 256 MB.
BENCHMARK(iteration)
    ->ArgNames({"data", "pipeline", "tensor", "expanded"})
    ->Args({15, 4, 4, 0})
    ->Args({15, 4, 4, 1})
    ->Args({256, 8, 8, 0})
    ->Iterations(3)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

void all_reduce(benchmark::State& state) {
  const auto devices = static_cast<int>(state.range(0));
  report(state, [&] {
    const models::Cluster cluster = nodes_of(devices, 1);
    IterationOptions options;
    options.ring = state.range(1) != 0 ? RingMode::stepwise : RingMode::aggregated;
    return measure(
        cluster, llama_80(),
        [&](const models::Job&) {
          return collective_program(ir::CollectiveKind::all_reduce, devices, 1_GiB);
        },
        options);
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
