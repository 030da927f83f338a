/// Random valid plans for the tests of lowering, on the workload of the number machine.
#pragma once
#include <cstdint>

#include "models/base/rng.h"
#include "models/ir/plan.h"
#include "models/ir/program.h"
#include "models/spec/cluster.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// Width and inner width of the blocks.
inline constexpr int kMachineWidth = 3;
inline constexpr int kMachineInner = 12;

/// What random plans may use besides unequal pipelines, stages and groups.
struct Features {
  bool sequence = false;  ///< Megatron's, Ulysses' and ring sequence parallelism; 12 tokens.
  int experts = 0;
  bool tied = false;
  /// Pipelines with equal stages whose micro-batches are partly computed by other pipelines; some
  /// stages leave all of them.
  bool reroutes = false;
  /// Redundancy::next_stage: two stages or more of one segment each, no ZeRO, no virtual stages.
  /// Not with experts or reroutes.
  bool redundancy = false;
  /// No schedule that feeds micro-batches from both ends.
  bool one_way = false;
};

struct RandomPlan {
  ir::Plan plan;
  Workload workload;
  int devices = 0;
};

/// Equal seeds give equal plans. Always drawn: schedule, transfers, overlap, buckets, ZeRO with
/// shard groups or uneven shards, recompute, pipelines and stages of any size, groups of any
/// degree, two segments in a stage, also with other groups; device ids in no order.
RandomPlan random_plan(std::uint64_t seed, const Features& features);

/// Uneven ZeRO shards, where the plan may have them.
void draw_state_weights(ir::Plan& plan, Rng rng);

/// Whether the op gathers parameters in front of the forward passes (parameter_overlap).
bool is_first_gather(const ir::Program& program, OpId id);

}  // namespace orrery::models
