/// A plan as the Orrery planner's search sees it: what a move may change, and nothing that follows
/// from it. Layers are counted from the first one after the embedding; embedding and head belong to
/// the first and the last layer.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/cost/expert_share.h"
#include "models/ir/plan.h"
#include "planners/planner.h"

namespace orrery::planners {

/// A tensor-parallel group: as many devices as its degree.
struct DraftGroup {
  std::vector<DeviceId> devices;
  int samples = 1;  ///< Of each micro-batch.
  int experts = 0;  ///< ir::Group::experts.
  int degree() const { return static_cast<int>(devices.size()); }
  auto operator<=>(const DraftGroup&) const = default;
};

/// A run of layers: the first `full` recompute all, the next `selective` the attention scores.
struct DraftChunk {
  int layers = 1;
  int full = 0;
  int selective = 0;
  /// Its runs of layers in their order, each with how it is recomputed; some may be empty.
  std::array<std::pair<int, ir::Recompute>, 3> parts() const {
    return {{{full, ir::Recompute::full},
             {selective, ir::Recompute::selective},
             {layers - full - selective, ir::Recompute::none}}};
  }
  auto operator<=>(const DraftChunk&) const = default;
};

/// Data-parallel groups (most often one) that compute one chunk for each virtual stage.
struct DraftStage {
  std::vector<DraftGroup> groups;
  std::vector<DraftChunk> chunks;
  /// So many consecutive groups hold one copy of the experts together: groups of as many devices
  /// and samples, or single devices, so that the simulator has them meet at each dispatch and
  /// combine.
  int expert_parallel = 1;
  int layers() const;
  auto operator<=>(const DraftStage&) const = default;
};

struct DraftPipeline {
  int micro_batches = 1;
  int micro_batch_size = 1;
  std::vector<DraftStage> stages;
  int samples() const { return micro_batches * micro_batch_size; }
  auto operator<=>(const DraftPipeline&) const = default;
};

/// Largest of Draft::state_weights.
inline constexpr int kMostDraftWeight = 8;

struct Draft {
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
  int virtual_stages = 1;
  ir::Zero zero;
  /// Under ZeRO-3: the last so many layers of the model have lighter_zero() instead.
  int lighter_layers = 0;
  ir::ActivationTransfer transfer = ir::ActivationTransfer::leader_broadcast;
  bool overlap = false;  ///< Gradients synchronize during the backward pass.
  /// With overlap: parameters that ZeRO-1 or 2 shards are gathered in the next iteration.
  bool gathers_next = false;
  Bytes bucket;  ///< Of gradients that synchronize together; 0: of a run of blocks.
  /// By GPU type: how much of what ZeRO divides its groups keep (ir::Group::state_weight). Empty:
  /// all the same.
  std::vector<int> state_weights;
  std::vector<DraftPipeline> pipelines;
  auto operator<=>(const Draft&) const = default;
};

/// The larger of ZeRO-1 and 2 that the job allows; none: it allows neither.
std::optional<ir::Zero> lighter_zero(const models::Job& job);
/// The first of the layers that have it, of `layers`: all if the draft has none.
int first_lighter(const Draft& draft, int layers);

/// Layers of a chunk that are recomputed, and whose states ZeRO divides, in one way.
struct DraftPart {
  int first = 0;
  int layers = 0;
  ir::Recompute recompute = ir::Recompute::none;
  ir::Zero zero;
};
/// Of a chunk from layer `first` on, in their order; `layers` are those of the model.
std::vector<DraftPart> parts_of(const Draft& draft, const DraftChunk& chunk, int first, int layers,
                                const models::Job& job);

/// Whether its plan may gather parameters in the next iteration: ZeRO-1 or 2 of any layers, with
/// overlap.
bool has_gathers(const Draft& draft);
/// Whether its plan does (parameter_overlap).
bool gathers_in_passes(const Draft& draft);

/// Of a group: of the type of its first device.
int state_weight(const Draft& draft, const DraftGroup& group, const models::Cluster& cluster);
/// Whether its plan may divide states unevenly: by ZeRO over all of several pipelines that share no
/// experts.
bool may_weigh_states(const Draft& draft);

/// The plan, unsigned.
ir::Plan plan_of(const Draft& draft, const PlannerInput& input);

/// Of a group, of those of a stage that share experts.
models::ExpertShare expert_share(const std::vector<DraftGroup>& groups, int expert_parallel,
                                 std::size_t group);

/// Whether groups can hold the experts of a stage together: they divide the experts of the model or
/// name theirs, and have as many devices and samples, or are single devices. True for a degree
/// of 1.
bool can_share_experts(const DraftStage& stage, int degree, const models::Workload& workload);
/// Divides the samples of a micro-batch over the groups of stages whose groups do not take them
/// all: evenly, more to the first. False: there are fewer than groups.
bool share_samples(DraftPipeline& pipeline);

/// Whether groups that share experts take unlike samples or name their experts.
bool has_unlike_shares(const DraftStage& stage);
/// Whether groups of any stage do.
bool shares_experts(const Draft& draft);

/// None of what a draft cannot say: redundancy, reroutes, experts that groups share which differ or
/// whose parameters ZeRO-3 divides further, sequence parallelism other than Megatron's, stages
/// without a layer, groups or experts that change from segment to segment, ZeRO settings that
/// change other than once, from ZeRO-3 to lighter_zero(), shards that differ within a GPU type or
/// by more than kMostDraftWeight.
std::optional<Draft> draft_of(const ir::Plan& plan, const PlannerInput& input);

/// What the second does otherwise, in words: "8 stages instead of 5, ZeRO-1 instead of ZeRO-0".
std::string differences(const Draft& before, const Draft& after);

/// Devices that the draft uses, ascending.
std::vector<DeviceId> devices_of(const Draft& draft);

}  // namespace orrery::planners
