/// Memory of a device: what stays for the whole iteration, and the activations in flight, per
/// stage of a plan. The exact timeline comes from replaying a Program's buffer effects.
#pragma once
#include <vector>

#include "models/base/units.h"
#include "models/ir/plan.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"
#include "models/ir/verdict.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// Per device of a segment's group, in bytes.
struct SegmentMemory {
  Bytes parameters;
  Bytes gradients;
  Bytes optimizer_states;             ///< Master copy and moments, after ZeRO sharding.
  Bytes activations_per_micro_batch;  ///< Kept from forward to backward.
  Bytes recomputed;                   ///< Transient in a backward op: one block's activations.
  Bytes logits;                       ///< Transient in the head.
};

/// `replicas` is the number of data-parallel copies of the segment's blocks (for ZeRO).
SegmentMemory segment_memory(const ir::Segment& segment, const ir::Group& group, int replicas,
                             const Workload& workload, const Job& job);

/// Micro-batches whose activations a stage holds at its peak: GPipe all m; 1F1B min(m, stages -
/// stage) [Narayanan et al. 2021, 2.2]; interleaved per its warm-up count.
int micro_batches_in_flight(ir::ScheduleKind schedule, int stages, int stage, int micro_batches,
                            int virtual_stages);

/// Peak of each device type over the plan, in closed form.
ir::MemoryVerdict check_memory(const ir::Plan& plan, const Cluster& cluster,
                               const Workload& workload, const Job& job,
                               const ir::Profile& profile);

/// Replays buffer effects in the order of each rank's compute stream: peak by rank.
std::vector<Bytes> peak_memory(const ir::Program& program);

}  // namespace orrery::models
