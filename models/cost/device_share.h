/// What one device brings and holds, whatever the plan: the dtype in which it computes, its peak,
/// and its share of a block's parameters and of the model states.
#pragma once
#include <optional>

#include "models/base/units.h"
#include "models/cost/expert_share.h"
#include "models/ir/model_shape.h"
#include "models/ir/plan.h"
#include "models/spec/cluster.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// The dtype in which a GPU computes what asks for `dtype`: that one if it has a peak, else the
/// first it has of fp4 -> fp8 -> bf16 -> fp16 -> fp32, bf16 -> fp16 -> fp32, fp16 -> bf16 -> fp32,
/// tf32 -> fp32. nullopt if it has none of them. Bytes stay those of `dtype`.
std::optional<ir::Dtype> supported_dtype(const GpuType& gpu, ir::Dtype dtype);

/// Peak of the GPU in that dtype; 0 if it has none.
FlopsPerSecond peak_flops(const GpuType& gpu, ir::Dtype dtype);

/// Elements of the block's parameters on one device: split ones in whole slices over the
/// tensor-parallel group (the first devices get one slice more), experts' divided by
/// `experts.parts`, the rest on every device.
double device_parameters(const Block& block, int tensor_parallel, const ExpertParts& experts);

/// Replicas among which ZeRO divides the model states: `replicas` of a block in the plan, or fewer
/// if the segment has shard groups. Where shards are uneven a device counts as one of as many
/// replicas as its shard is a part of the whole.
double shard_count(const ir::Zero& zero, double replicas);

/// As device_parameters, each parameter divided among the shards that hold its states. Experts
/// have experts.degree times fewer replicas.
double sharded_parameters(const Block& block, int tensor_parallel, const ExpertParts& experts,
                          const ir::Zero& zero, double replicas);

/// Of tied embeddings the elements on one device of the matrix that blocks [first, last] hold once
/// though both ends of the model use it; 0 where they have not both ends.
double tied_parameters(const Workload& workload, BlockId first, BlockId last, int tensor_parallel);

/// Recompute concerns layers; embedding and head keep what they need, as the FLOP counts of
/// [Narayanan et al. 2021, Eq. 3] assume.
bool is_recomputed(ir::BlockKind kind);

}  // namespace orrery::models
