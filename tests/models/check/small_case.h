/// A valid plan on a small cluster, for tests that break it in one place.
#pragma once
#include "models/check/validate.h"
#include "tests/worlds/clusters.h"
#include "tests/worlds/models.h"
#include "tests/worlds/plans.h"

namespace orrery::models {

/// Two nodes of four GPUs of vendor `x`, one of two of vendor `y`; devices 0 to 9.
inline Cluster small_cluster() {
  std::vector<GpuType> types(2);
  types[0].name = types[0].vendor = "x";
  types[1].name = types[1].vendor = "y";
  Cluster cluster = worlds::bare_cluster({{0, 0, 0, 0}, {0, 0, 0, 0}, {1, 1}}, types);
  cluster.name = "small";
  cluster.host_staging.push_back({"x", "y", 2_GBps, {}});
  seal(cluster);
  return cluster;
}

/// Embedding, `layers` transformer blocks, head.
inline Workload small_workload(int layers = 4) {
  Workload workload;
  workload.shape.layers = layers;
  workload.shape.heads = 8;
  workload.shape.kv_heads = 2;
  workload.shape.ffn = 48;
  workload.shape.vocabulary = 101;
  workload.sequence_length = 64;
  workload.blocks.resize(layers + 2);
  workload.blocks.front().kind = ir::BlockKind::embedding;
  workload.blocks.back().kind = ir::BlockKind::head;
  workload.hash = "workload";
  return workload;
}

using worlds::group;
using worlds::segment;

/// Two pipelines over all devices of `x`: 0-1 then 2 | 3 and 4-7 as one stage.
inline ir::Plan small_plan() {
  ir::Plan plan;
  ir::Pipeline first;
  first.micro_batches = 3;
  first.micro_batch_size = 2;
  first.stages = {{{segment(0, 2, {group({0, 1}, 2)})}},
                  {{segment(3, 5, {group({2}, 1), group({3}, 1)})}}};
  ir::Pipeline second;
  second.micro_batches = 5;
  second.micro_batch_size = 2;
  second.stages = {{{segment(0, 5, {group({4, 5, 6, 7}, 2)})}}};
  plan.pipelines = {first, second};
  plan.cluster_hash = small_cluster().hash;
  plan.workload_hash = "workload";
  return plan;
}

inline Job small_job() { return worlds::make_job(16, 64); }

}  // namespace orrery::models
