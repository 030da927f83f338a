/// What a run must not exceed before anything is planned or simulated: numbers that a GPU cannot
/// compute with, plans too large to hold in memory, iterations longer than the clock can count.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "experiments/study/run_spec.h"
#include "models/config/diagnostics.h"
#include "models/ir/plan.h"
#include "models/ir/profile.h"
#include "models/spec/cluster.h"
#include "models/spec/workload.h"

namespace orrery::experiments {

/// Passes of micro-batches through stages that a plan may have: a simulation keeps about 600 bytes
/// for each.
inline constexpr std::int64_t kMostPasses = std::int64_t{1} << 22;

/// A batch of which a planner could make only plans that check_size() or memory refuses: samples x
/// min(layers, GPUs), which are the passes of the deepest pipeline, above 2 x kMostPasses.
void check_batch(const RunSpec& spec, const models::Cluster& cluster,
                 const models::Workload& workload, config::Diagnostics& diagnostics);

/// For each GPU type that computes in another dtype than the job's, which it does not have, a
/// sentence that says so.
std::vector<std::string> substitute_notes(const models::Cluster& cluster, ir::Dtype dtype);

/// All limits of a run, each problem at its place:
/// - each GPU type that has neither the job's dtype nor a substitute [models/cost/device_share.h];
/// - a plan (null: a planner will make it) of more than kMostPasses, at its place in the spec's
///   file; else check_batch();
/// - an iteration that could last longer than 10^9 seconds: the clock counts nanoseconds in 63
/// bits.
///   The bound takes all work for one GPU of the slowest kind with the largest slowdown, and all
///   messages one after another over the slowest link; measured times of the profile count fully,
///   latencies and fixed costs for each message and op.
void check_limits(const RunSpec& spec, const models::Cluster& cluster,
                  const models::Workload& workload, const ir::Profile& profile,
                  const ir::Plan* plan, const std::string& plan_file,
                  config::Diagnostics& diagnostics);

}  // namespace orrery::experiments
