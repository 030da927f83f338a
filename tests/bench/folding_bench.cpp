// One iteration of jobs that repeat themselves, folded and not: from plan to iteration time, on up
// to a million GPUs. What a run prints is a table of targets and what was measured here; each line
// runs in a process of its own and reports CPU seconds and peak memory, those of plan, cluster and
// topology apart.
//
//   folding_bench [GPUS [KIND [FOLD]]]     symmetric, slow, short, mixed, pods, zero1 or zero3;
//                                          automatic or off; CSV
#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <variant>

#include "models/cost/pricer.h"
#include "models/ir/plan.h"
#include "models/spec/topology.h"
#include "sim/flow/fork.h"
#include "sim/iteration/iteration.h"

namespace orrery::sim {
namespace {

constexpr int kGpusPerNode = 8, kNodesPerLeaf = 32, kMicroBatches = 64, kTensor = 8;
constexpr std::int64_t kSequence = 4096;

/// Nodes of eight GPUs with NVLink and a NIC each; 32 nodes to a leaf. `mixed`: the GPUs of the
/// second half of the nodes are slower. `pods`: of 16 leaves each, whose spines reach the core with
/// a quarter of the bandwidth of their leaves.
models::Cluster make_cluster(int nodes, std::string_view kind) {
  const bool mixed = kind == "mixed";
  models::Cluster cluster;
  models::GpuType gpu;
  gpu.name = "gpu";
  gpu.peak = {{ir::Dtype::bf16, FlopsPerSecond{989e12}}};
  gpu.memory = 80_GiB;
  gpu.memory_bandwidth = BytesPerSecond{3.35e12};
  cluster.gpu_types = {gpu};
  gpu.name = "slower";
  gpu.peak = {{ir::Dtype::bf16, FlopsPerSecond{660e12}}};
  if (mixed) cluster.gpu_types.push_back(gpu);
  cluster.links["nvlink"] = {"nvlink", BytesPerSecond{450e9}, Seconds{1e-6}, 1, false, ""};
  cluster.links["nic"] = {"nic", BytesPerSecond{50e9}, Seconds{4e-6}, 1, false, ""};
  models::Node node;
  node.gpu_types.assign(kGpusPerNode, 0);
  std::vector<int> all;
  for (int i = 0; i < kGpusPerNode; ++i) all.push_back(i);
  node.domains = {{all, "nvlink"}};
  node.nics = {{"nic", {}}};
  cluster.nodes.assign(nodes, node);
  for (int n = 0; n < nodes; ++n) {
    models::Node& one = cluster.nodes[n];
    one.leaf = n / kNodesPerLeaf;
    if (mixed && n >= nodes / 2) one.gpu_types.assign(kGpusPerNode, 1);
  }
  cluster.fabric.leaf_latency = Seconds{1e-6};
  cluster.fabric.spine_latency = Seconds{2e-6};
  if (kind == "pods") {
    cluster.fabric.leaf_oversubscription = 1;
    cluster.fabric.leaves_per_pod = 16;
    cluster.fabric.spine_oversubscription = 4;
    cluster.fabric.core_latency = Seconds{4e-6};
  }
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

/// `short`: the second pipeline has one stage less than the others.
ir::Plan make_plan(int data, int stages, int blocks, std::string_view kind) {
  ir::Plan plan;
  plan.pipelines.reserve(data);
  for (int p = 0; p < data; ++p) {
    ir::Pipeline pipeline;
    pipeline.micro_batches = kMicroBatches;
    const int own = kind == "short" && p == 1 ? stages - 1 : stages;
    int device = p * stages * kTensor;
    for (int s = 0; s < own; ++s) {
      ir::Segment segment;
      segment.first_block = {blocks * s / own};
      segment.last_block = {blocks * (s + 1) / own - 1};
      if (kind == "zero1") segment.zero.stage = 1;
      if (kind == "zero3") segment.zero.stage = 3;
      ir::Group group;
      group.tensor_parallel = kTensor;
      for (int t = 0; t < kTensor; ++t) group.devices.push_back({device++});
      segment.groups = {group};
      pipeline.stages.push_back({{segment}});
    }
    plan.pipelines.push_back(pipeline);
  }
  return plan;
}

double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double peak_megabytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

struct Measurement {
  double inputs, inputs_megabytes, lower, run, simulated, pipelines, megabytes;
  double seconds() const { return lower + run; }
};

Measurement measure(int gpus, std::string_view kind, FoldMode fold) {
  const int stages = std::min(8, gpus / kTensor);
  const double begin = cpu_seconds();
  const models::Cluster cluster = make_cluster(gpus / kGpusPerNode, kind);
  const models::Workload workload = make_workload();
  const ir::Plan plan = make_plan(gpus / (stages * kTensor), stages, workload.size(), kind);
  models::Job job;
  job.sequence_length = kSequence;
  const models::Topology topology(cluster);
  IterationSimulator simulator(cluster, topology, false);
  IterationOptions options;
  options.fold = fold;
  options.record_spans = options.record_memory = options.record_links = false;
  if (kind == "slow") options.stragglers = {{{0}, 1.1}};
  const double start = cpu_seconds();
  const double inputs_megabytes = peak_megabytes();
  FoldedIteration iteration(plan, cluster, topology, workload, job, {}, options);
  const models::Pricer pricer(cluster, workload, job, ir::Profile{});
  const models::ProgramPrices prices(iteration.program(), pricer);
  const double lowered = cpu_seconds();
  const IterationResult result = simulator.run(iteration, prices, pricer, options);
  const double end = cpu_seconds();
  return {start - begin,
          inputs_megabytes,
          lowered - start,
          end - lowered,
          result.iteration_time.value,
          static_cast<double>(result.simulated_pipelines),
          peak_megabytes()};
}

Measurement measured(int gpus, std::string_view kind, FoldMode fold) {
  const ForkResult result = run_forked([&] {
    const Measurement measurement = measure(gpus, kind, fold);
    return std::string(reinterpret_cast<const char*>(&measurement), sizeof measurement);
  });
  Measurement out{};
  if (const auto* failure = std::get_if<ChildFailure>(&result)) {
    fmt::print(stderr, "{} GPUs, {}: {}\n", gpus, kind, failure->message);
    std::exit(1);
  }
  std::memcpy(&out, std::get<std::string>(result).data(), sizeof out);
  return out;
}

int one(int gpus, std::string_view kind, FoldMode fold) {
  const Measurement m = measured(gpus, kind, fold);
  fmt::print("{},{},{},{:.4f},{:.4f},{:.4f},{:.17g},{},{:.1f},{:.1f}\n", gpus, kind,
             fold == FoldMode::off ? "off" : "automatic", m.inputs, m.lower, m.run, m.simulated,
             m.pipelines, m.inputs_megabytes, m.megabytes);
  return 0;
}

int table() {
  struct Row {
    int gpus;
    const char* kind;
    double seconds;
    double megabytes;  ///< 0: no target.
    bool whole;        ///< The whole program is measured, too.
  };
  bool missed = false;
  fmt::print("{:28}{:>8}{:>10}{:>8}{:>8}{:>8}{:>11}{:>10}{:>9}\n", "iteration, folded", "target",
             "CPU s", "", "target", "MB", "pipelines", "whole s", "ratio");
  for (const Row& row :
       {Row{16384, "symmetric", 0.05, 50, true}, Row{16384, "slow", 0.15, 0, true},
        Row{16384, "short", 0.15, 0, true}, Row{131072, "symmetric", 0.1, 0, false},
        Row{131072, "pods", 0.1, 0, false}, Row{1048576, "pods", 1, 512, false}}) {
    const Measurement m = measured(row.gpus, row.kind, FoldMode::automatic);
    const bool met =
        m.seconds() <= row.seconds && (row.megabytes == 0 || m.megabytes <= row.megabytes);
    missed |= !met;
    std::string line = fmt::format("{:>9} GPUs, {:12}{:8g}{:10.3f}{:>8}{:8g}{:8.0f}{:11g}",
                                   row.gpus, row.kind, row.seconds, m.seconds(),
                                   met ? "met" : "MISSED", row.megabytes, m.megabytes, m.pipelines);
    if (row.whole) {
      const Measurement whole = measured(row.gpus, row.kind, FoldMode::off);
      line += fmt::format("{:10.3f}{:9.1f}", whole.seconds(), whole.seconds() / m.seconds());
      const double off = std::abs(m.simulated / whole.simulated - 1);
      if (off > 1e-9) {
        line += fmt::format("  differs by {:.1e}", off);
        missed = true;
      }
    }
    fmt::print("{}\n", line);
  }
  return missed ? 1 : 0;
}

}  // namespace
}  // namespace orrery::sim

int main(int argc, char** argv) {
  using orrery::sim::FoldMode;
  if (argc < 2) return orrery::sim::table();
  const std::string_view kind = argc > 2 ? argv[2] : "symmetric";
  const bool off = argc > 3 && std::string_view(argv[3]) == "off";
  return orrery::sim::one(std::atoi(argv[1]), kind, off ? FoldMode::off : FoldMode::automatic);
}
