/// Plan to Program. The one place where a plan becomes ops; all communication in it comes from
/// models/sharding. Serves the simulator and the executor alike.
#pragma once
#include <cstdint>
#include <vector>

#include "models/check/validate.h"
#include "models/ir/plan.h"
#include "models/ir/program.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"

namespace orrery::models {

struct LowerOptions {
  /// One representative rank for each tensor-parallel group instead of one for each device.
  bool collapsed = true;
  std::uint64_t seed = 0;  ///< Copied to the header: the executor's initial weights and data.
  /// By pipeline: whether its ops are built; empty: all are. For the simulator, which needs one of
  /// several pipelines that do the same. The ranks, segments and groups of the others are there,
  /// and so are the collectives among pipelines, with the full groups but only the built ones'
  /// ops as members, if any. Regions are left out.
  std::vector<bool> built = {};
};

/// What a program does not say of its pipelines when it has the ops of some only.
struct PartialProgram {
  /// For each collective: which step of synchronization it is part of, ascending; all pipelines
  /// walk the steps in this order. -1: it serves one built pipeline.
  std::vector<std::int32_t> steps;
  /// A message of synchronization inside of one pipeline, built or not, between shards that differ.
  struct Message {
    int pipeline = 0;
    std::int32_t after = 0;  ///< So many of the program's collectives come before it.
    DeviceId source, destination;
    Bytes bytes;
  };
  std::vector<Message> messages;  ///< In order.
  /// Pipelines that send to or receive from others beyond collectives and were not all built: their
  /// messages are missing. Ascending.
  std::vector<std::int32_t> missing;
};

/// What a valid plan may say and lower() cannot turn into ops: redundancy together with ZeRO,
/// expert parallelism, reroutes, stages of several segments or pipelines of one stage
/// (find_redundancy_defects), ZeRO shards on stages that leave all micro-batches to other
/// pipelines, schedules that find_schedule() does not know. Empty when the plan can be lowered.
std::vector<PlanDefect> find_unsupported(const ir::Plan& plan);

/// The plan must be valid (check/validate.h) and have nothing unsupported (aborts otherwise); it
/// need not fit in memory. With Redundancy::next_stage the devices of a stage also run the forward
/// pass of the next one, right after their own of the same micro-batch, on the same group (no
/// transfer), and throw its output away; after gradient synchronization the next stage sends them
/// its gradients, and their optimizer steps update the copy too [Bamboo, NSDI 2023].
/// Deviation: Bamboo keeps what redundant passes compute in host memory, which takes a transfer
/// that is left out here. Gradients are synchronized as often as the job says
/// (Job::gradient_synchronizations), bucket by bucket in each round; ZeRO scatters them in each
/// round and gathers parameters once. The matrix that tied embeddings share does so too where
/// every pipeline is a single stage; else once, at the end, as its two ends are summed at the end
/// of a step [Megatron-LM, finalize_model_grads], and more often would drain the pipelines. Blocks
/// cut by gradient_overlap become segments of their own in the program. The result has no defect
/// (ir::find_defect).
ir::Program lower(const ir::Plan& plan, const Cluster& cluster, const Workload& workload,
                  const Job& job, const LowerOptions& options, PartialProgram* partial = nullptr);

}  // namespace orrery::models
