/// Structural validity of plans: what no consumer should ever have to ask again. Runs after every
/// planner and before every consumer. Memory is not judged here (cost/memory.h).
#pragma once
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "models/ir/plan.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// One thing that is wrong, and where: path is like "pipelines[1].stages[2].segments[0].groups[0]",
/// the keys of the plan's YAML.
struct PlanDefect {
  std::string path;
  std::string what;
  std::string hint;
};

/// Content hash of what a plan depends on: which GPU types each node has, in order. Names, prices,
/// rates and links do not matter.
std::string layout_hash(const Cluster& cluster);
/// Whether a plan with this cluster_hash fits the cluster: it is empty, the cluster's own, or that
/// of its layout.
bool made_for(const std::string& cluster_hash, const Cluster& cluster);

/// All defects; empty when the plan may be used. Refuses:
/// - hashes of a cluster of other GPUs (made_for) or of another workload (an empty hash is not
///   compared);
/// - a device that is unknown or used twice; segments of a stage on different devices;
/// - blocks that are missing, repeated, unknown or out of order;
/// - samples that do not add up to the micro-batch, batches that do not add up to the job's;
/// - a group whose devices do not number tensor_parallel x sequence_degree;
/// - degrees that do not divide the model's heads, key-value heads (replicated when the degree is a
///   multiple of them), feed-forward width or split dimensions (vocabularies are padded), and
///   sequence lengths that cannot be split;
/// - a group across vendors that talk through host memory;
/// - expert-parallel degrees that do not divide experts and groups;
/// - virtual stages that do not match the schedule;
/// - under a schedule that feeds micro-batches from both ends: odd numbers of stages or
///   micro-batches, fewer than two of these for each stage, a stage that holds a block twice,
///   reroutes, and several rounds of gradient synchronization;
/// - replicas of a block with different ZeRO settings; uneven shards without ZeRO, over a part of
///   the replicas, or of experts that several groups hold;
/// - optimizer states in host memory where the job does not allow it, or the cluster file does not
///   say how devices reach it;
/// - ZeRO, recompute, schedules, sequence parallelism, tensor-parallel degrees and micro-batch
///   sizes that the job does not allow; but a plan with reroutes may always use a schedule that
///   splits the backward pass, which is part of rerouting [ReCycle, SOSP 2024];
/// - reroutes to pipelines, stages or micro-batches that do not exist or do not match;
/// - where the job synchronizes gradients several times in a step, reroutes between pipelines of
///   different numbers of micro-batches, or that leave a stage without a share in a round.
std::vector<PlanDefect> validate(const ir::Plan& plan, const Cluster& cluster,
                                 const Workload& workload, const Job& job);

/// Adds defects as problems at their positions in `plan_file`, the YAML that the plan was read
/// from; a position that cannot be found is given by its path.
void report(const std::vector<PlanDefect>& defects, const std::string& plan_file,
            config::Diagnostics& diagnostics);

}  // namespace orrery::models
