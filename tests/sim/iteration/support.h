/// Hand-made programs, and one process per simulation.
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
#include "tests/worlds/clusters.h"
#include "tests/worlds/models.h"
#include "tests/worlds/plans.h"

namespace orrery::sim {

using worlds::ClusterShape;
using worlds::kBlockSeconds;
using worlds::make_cluster;
using worlds::make_plan;
using worlds::make_workload;
using worlds::PlanShape;

models::Job make_job();

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
Outcome simulate(const models::Cluster& cluster, const models::Workload& workload,
                 const models::Job& job, const ir::Program& program,
                 const IterationOptions& options, const ir::Profile& profile);
/// Lowers and runs a plan.
Outcome simulate(const models::Cluster& cluster, const models::Workload& workload,
                 const ir::Plan& plan, bool collapsed, const IterationOptions& options = {});

/// |a - b| / max(|a|, |b|).
double relative_difference(double a, double b);

}  // namespace orrery::sim
