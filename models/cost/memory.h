/// Memory of a device: what stays for the whole iteration, and the activations in flight, per
/// stage of a plan. The exact timeline comes from replaying a Program's buffer effects.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/cost/expert_share.h"
#include "models/ir/plan.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"
#include "models/ir/verdict.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// CUDA context, cuBLAS and NCCL of one process, where the profile does not say. Source: assumed.
inline constexpr Bytes kAssumedContext{0.75 * 0x1p30};

/// Per device of a segment's group, in bytes. Of unevenly split tensors the largest share.
struct SegmentMemory {
  Bytes parameters;
  Bytes gradients;
  Bytes optimizer_states;             ///< Master copy and moments, after ZeRO sharding.
  Bytes activations_per_micro_batch;  ///< Kept from forward to backward.
  Bytes recomputed;                   ///< Transient in a backward op: one block's activations.
  /// Kept between the halves of a split backward pass: of all blocks.
  Bytes recomputed_kept;
  Bytes logits;  ///< Transient in the head.
  /// Staging: the activations of one micro-batch that are received and sent, and with ZeRO-3 the
  /// gathered parameters of the largest block.
  Bytes communication;

  Bytes states() const { return parameters + gradients + optimizer_states; }
  /// All but what micro-batches in flight keep, of a stage with this segment alone and a backward
  /// pass that is not split.
  Bytes fixed() const { return states() + recomputed + logits + communication; }
};

/// `replicas` is the number of data-parallel replicas of the segment's blocks (for ZeRO), each
/// counted with its Group::state_weight.
/// States: elements per device x Job::state_bytes; ZeRO divides optimizer states (stage 1),
/// gradients (2) and parameters (3) among the shards [Rajbhandari et al. 2020]. Tied embeddings are
/// counted once where embedding and head are in the same segment.
/// Activations per sample and layer [Korthikanti et al. 2022, 4.1 to 5]: kept_split / tp +
/// kept_replicated, the latter also / tp with Megatron's sequence parallelism; all divided by the
/// sequence degree. Selective recompute does not keep attention_kept / tp, full keeps the input of
/// each layer only; `recomputed` is what a layer lacks then. Embedding and head keep theirs.
/// Where groups that share experts differ, the weights of experts, and what is kept around and
/// inside them, are those of the group's own experts and the tokens of all groups.
SegmentMemory segment_memory(const ir::Segment& segment, const ir::Group& group, double replicas,
                             const Workload& workload, const Job& job);
/// The same of a group whose peers the segment does not have.
SegmentMemory segment_memory(const ir::Segment& segment, const ir::Group& group,
                             const ExpertShare& experts, double replicas, const Workload& workload,
                             const Job& job);

/// Data-parallel replicas of a block, each counted with its Group::state_weight.
using ReplicasOf = std::function<int(BlockId)>;

/// As above where blocks of the segment may have different numbers of replicas.
SegmentMemory segment_memory(const ir::Segment& segment, const ir::Group& group,
                             const ReplicasOf& replicas_of, const Workload& workload,
                             const Job& job);

/// What a stage keeps of a segment of the next one with Redundancy::next_stage: its blocks on the
/// stage's own groups (of its first segment), so that redundant forward passes find their input
/// where the stage's own passes leave it. The last stage's next one is the first.
ir::Segment redundant_segment(const ir::Stage& stage, const ir::Segment& next);

/// ScheduleEntry::in_flight of an available schedule.
int micro_batches_in_flight(ir::ScheduleKind schedule, int stages, int stage, int micro_batches,
                            int virtual_stages);

/// Context of the GPU type: the profile's, else kAssumedContext.
Bytes context_memory(const ir::Profile& profile, const std::string& gpu);

/// What a GPU needs whose buffers peak at `peak`: fragmentation x peak + context of the profile.
Bytes device_memory(const ir::Profile& profile, const std::string& gpu, Bytes peak);

/// The largest peak of buffers that fits into the GPU's memory.
Bytes largest_peak(const ir::Profile& profile, const GpuType& gpu);

/// Peak of each device type over the plan, in closed form: states + activations in flight + the
/// largest transient of a segment + the largest staging, times the profile's fragmentation, plus
/// context. The plan must be valid but for memory.
/// The passes of an interleaved stage are replayed in their order. With a split backward pass what
/// was recomputed is kept for the weights' gradients. A stage that computes rerouted micro-batches
/// may hold all of them in addition to its own [ReCycle, SOSP 2024], capped at what it computes.
/// With redundancy next_stage each stage also holds parameters and optimizer states of the next
/// one, the last those of the first [Bamboo, NSDI 2023], in its own groups' slices. A redundant
/// forward pass needs what the next stage keeps of a micro-batch until the pass ends; at the
/// optimizer step, when no activations are left, the received gradients are there.
/// The share Plan::optimizer_offload of the optimizer states is not on the devices: the verdict has
/// the host memory of the node that has the least room for it (host_bytes()).
ir::MemoryVerdict check_memory(const ir::Plan& plan, const Cluster& cluster,
                               const Workload& workload, const Job& job,
                               const ir::Profile& profile);

/// Replays buffer effects in the order of each rank's compute stream, on top of the resident
/// buffers: peak by rank. Allocations count from the start of their op, frees from its end; other
/// streams are not part of this order and are not replayed.
std::vector<Bytes> peak_memory(const ir::Program& program);

}  // namespace orrery::models
