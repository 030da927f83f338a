// One training iteration from plan to run log, against the targets of the design: lowering,
// pricing, simulation, spans, breakdown and memory timeline are timed; process start and platform
// are not. Each repetition runs in a fresh process and reports CPU seconds and peak memory.
//
// tests/bench/run.sh prints the table of targets and what was measured here and, where
// $ORRERY_DATA/prototypes/simgrid/iter.cpp is there, the ratio to that prototype: a hand-written
// task graph of the same shape on bare SimGrid (variant=timer, ar=long), without lowering, prices,
// spans or memory, compiled and run together with this.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>

#include <cstring>
#include <functional>
#include <string>
#include <variant>

#include "models/cost/pricer.h"
#include "models/ir/plan.h"
#include "models/lower/lower.h"
#include "models/spec/topology.h"
#include "sim/flow/fork.h"
#include "sim/iteration/iteration.h"

namespace orrery::sim {
namespace {

constexpr int kGpusPerNode = 8, kMicroBatches = 64;
constexpr std::int64_t kSequence = 4096;

/// Nodes of eight GPUs with NVLink; `nics` NICs each.
models::Cluster make_cluster(int nodes, int gpus, int nics) {
  models::Cluster cluster;
  models::GpuType gpu;
  gpu.name = "gpu";
  gpu.peak = {{ir::Dtype::bf16, FlopsPerSecond{989e12}}};
  gpu.memory = 80_GiB;
  gpu.memory_bandwidth = BytesPerSecond{3.35e12};
  cluster.gpu_types = {gpu};
  cluster.links["nvlink"] = {"nvlink", BytesPerSecond{450e9}, Seconds{1e-6}, 1, false, ""};
  cluster.links["slot"] = {"slot", BytesPerSecond{64e9}, Seconds{1e-6}, 1, false, ""};
  cluster.links["nic"] = {"nic", BytesPerSecond{50e9}, Seconds{4e-6}, 1, false, ""};
  models::Node node;
  node.gpu_types.assign(static_cast<std::size_t>(gpus), 0);
  std::vector<int> all;
  for (int i = 0; i < gpus; ++i) all.push_back(i);
  node.domains = {{all, "nvlink"}};
  node.pcie = {{all, "slot", ""}};
  node.nics.assign(static_cast<std::size_t>(nics), {"nic", {}});
  cluster.nodes.assign(static_cast<std::size_t>(nodes), node);
  models::seal(cluster);
  return cluster;
}

/// 80 layers of Llama's shape.
models::Workload make_workload() {
  ir::ModelShape shape;
  shape.name = "llama-80";
  shape.layers = 80;
  shape.hidden = 8192;
  shape.heads = 64;
  shape.kv_heads = 8;
  shape.head_dim = 128;
  shape.ffn = 28672;
  shape.vocabulary = 32000;
  return models::build_workload(shape, kSequence, ir::Dtype::bf16);
}

ir::Plan make_plan(int data, int stages, int tensor, int blocks) {
  ir::Plan plan;
  int device = 0;
  for (int p = 0; p < data; ++p) {
    ir::Pipeline pipeline;
    pipeline.micro_batches = kMicroBatches;
    for (int s = 0; s < stages; ++s) {
      ir::Segment segment;
      segment.first_block = {blocks * s / stages};
      segment.last_block = {blocks * (s + 1) / stages - 1};
      ir::Group group;
      group.tensor_parallel = tensor;
      for (int t = 0; t < tensor; ++t) group.devices.push_back({device++});
      segment.groups = {group};
      pipeline.stages.push_back({{segment}});
    }
    plan.pipelines.push_back(pipeline);
  }
  return plan;
}

/// One collective among the first `members` devices.
ir::Program all_reduce_program(int members, Bytes bytes) {
  ir::Program program;
  program.pipelines = {{0, 1, 1}};
  program.groups.emplace_back();
  ir::CollectiveShape shape;
  shape.parts = {{0, bytes, {}}};
  program.collective_shapes = {shape};
  program.collectives = {{0, {0, static_cast<std::uint32_t>(members)}}};
  program.stream_begin = {0};
  for (int i = 0; i < members; ++i) {
    program.groups.front().devices.push_back({i});
    ir::Rank rank;
    rank.device = {i};
    rank.devices = {{i}};
    program.ranks.push_back(rank);
    ir::Op op;
    op.kind = ir::OpKind::collective;
    op.stream = ir::Stream::collective;
    op.purpose = ir::Purpose::data_parallel;
    op.rank = {i};
    op.match = 0;
    op.bytes = bytes;
    program.ops.push_back(op);
    program.members.push_back({i});
    const auto before = static_cast<std::uint32_t>(i);
    program.stream_begin.insert(program.stream_begin.end(), {before, before, before + 1});
  }
  program.dependency_begin.assign(program.ops.size() + 1, 0);
  return program;
}

double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
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
  const double start = cpu_seconds();
  const models::Topology topology(cluster);
  IterationSimulator simulator(cluster, topology);
  const double built = cpu_seconds();
  const ir::Program program = lower(job);
  const double lowered = cpu_seconds();
  const IterationResult result =
      simulator.run(program, models::Pricer(cluster, workload, job, ir::Profile{}), options);
  const double end = cpu_seconds();
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return {built - start,
          lowered - built,
          end - lowered,
          result.iteration_time.value,
          static_cast<double>(program.ops.size()),
          static_cast<double>(result.work.timers),
          static_cast<double>(result.work.flows),
          static_cast<double>(usage.ru_maxrss) * 1024 / 1e6};
}

void report(benchmark::State& state, const std::function<Measurement()>& work) {
  Measurement last{};
  for (auto step : state) {
    const ForkResult result = run_forked([&] {
      const Measurement measurement = work();
      return std::string(reinterpret_cast<const char*>(&measurement), sizeof measurement);
    });
    if (const auto* failure = std::get_if<ChildFailure>(&result)) {
      state.SkipWithError(failure->message.c_str());
      return;
    }
    std::memcpy(&last, std::get<std::string>(result).data(), sizeof last);
    state.SetIterationTime(last.lower + last.run);
  }
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
    const models::Cluster cluster =
        make_cluster(data * stages * tensor / kGpusPerNode, kGpusPerNode, 1);
    const models::Workload workload = make_workload();
    const ir::Plan plan = make_plan(data, stages, tensor, workload.size());
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
    const models::Cluster cluster = make_cluster(devices, 1, 1);
    IterationOptions options;
    options.ring = state.range(1) != 0 ? RingMode::stepwise : RingMode::aggregated;
    return measure(
        cluster, make_workload(),
        [&](const models::Job&) { return all_reduce_program(devices, 1_GiB); }, options);
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
