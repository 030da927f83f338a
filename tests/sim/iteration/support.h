/// Small clusters, workloads, plans and hand-made programs, and one process per simulation.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "models/ir/plan.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"
#include "sim/iteration/iteration.h"

namespace orrery::sim {

struct ClusterShape {
  int nodes = 1;
  int gpus = 8;  ///< Per node.
  BytesPerSecond nvlink{200e9};
  BytesPerSecond pcie{50e9};
  BytesPerSecond nic{25e9};
  Seconds latency{2e-6};  ///< Of NVLink; PCIe and NICs have twice that.
  bool nic_per_gpu = true;
  bool has_nvlink = true;
  bool shared_pcie = false;  ///< One medium for all slots of a node.
};

/// GPUs of 50 TFLOP/s achieved, with endless memory bandwidth: compute times are FLOPs / 5e13.
models::Cluster make_cluster(const ClusterShape& shape);

/// `blocks` equal transformer blocks: 1 ms forward per sample on one device, `activation` bytes
/// between blocks, two all-reduces of that size per block under tensor parallelism, and one matrix
/// of 4096 x 1024 that tensor parallelism splits.
models::Workload make_workload(int blocks, Bytes activation = Bytes{8 << 20});
inline constexpr double kBlockSeconds = 1e-3;

models::Job make_job();

struct PlanShape {
  int pipelines = 1;
  int stages = 1;
  int groups = 1;  ///< Per stage.
  int tensor_parallel = 1;
  int micro_batches = 4;
  int samples = 1;  ///< Of one group.
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
  ir::ActivationTransfer transfer = ir::ActivationTransfer::leader_broadcast;
  std::vector<int> blocks;  ///< By stage; empty: evenly.
  bool overlap = false;
};

/// Devices in order: pipeline by pipeline, stage by stage, group by group.
ir::Plan make_plan(const PlanShape& shape, int blocks);

/// `members` ranks on devices 0, 1, ... with one collective among all of them.
ir::Program collective_program(ir::CollectiveKind kind, int members, Bytes bytes);

/// Everything that a test asks of a run, fetched from a child process.
struct Outcome {
  double iteration_time = 0;
  std::vector<double> pipeline_times;
  std::vector<double> peak_memory;
  std::vector<ir::RankBreakdown> ranks;
  SimulatedWork work;
  std::int64_t duration = 0;  ///< Of the log's iteration, in nanoseconds.
  std::vector<std::pair<std::int64_t, std::int64_t>> marks;  ///< Of the log, in nanoseconds.
  int iterations = 0;
  bool settled = false;
  std::vector<std::pair<std::string, double>> links;
  std::vector<double> memory_samples;  ///< Rank, instant, bytes of each.
  std::string spans;                   ///< One line for each, all fields.
};

/// Device pairs that send one message each, all at once, every device in one pair at most.
ir::Program message_program(const std::vector<ir::Transfer>& messages);

/// Runs `program` in a child process with a fresh engine.
Outcome simulate(const models::Cluster& cluster, const models::Workload& workload,
                 const ir::Program& program, const IterationOptions& options = {},
                 const ir::Profile& profile = {});
/// Lowers and runs a plan.
Outcome simulate(const models::Cluster& cluster, const models::Workload& workload,
                 const ir::Plan& plan, bool collapsed, const IterationOptions& options = {});

/// |a - b| / max(|a|, |b|).
double relative_difference(double a, double b);

}  // namespace orrery::sim
