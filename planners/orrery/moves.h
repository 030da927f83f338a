/// Steps of the search from one draft to another. A move changes the structure (pipelines, groups,
/// order, batches, devices, or how all of it runs); layers, recomputation and samples are then
/// divided anew where the structure changed.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "models/base/rng.h"
#include "models/ir/names.h"
#include "planners/orrery/balance.h"
#include "planners/orrery/draft.h"
#include "planners/orrery/expert_moves.h"
#include "planners/planner.h"

namespace orrery::planners {

enum class MoveKind {
  layers,     ///< From one stage to another.
  batches,    ///< Samples from one pipeline to another; sizes of micro-batches.
  groups,     ///< Split, merge: tensor-parallel degree against stages and data parallelism.
  pipelines,  ///< Cut, join.
  order,      ///< Of stages; a stage from one pipeline to another.
  placement,  ///< Which devices.
  idle,       ///< Leave devices out, take them in.
  zero,       ///< Stage of ZeRO; how much of its shards GPU types keep.
  schedule,   ///< And virtual stages.
  transfer,   ///< How activations cross between groups; overlap of gradients.
  experts,    ///< Which groups of a stage hold the experts of its layers together.
};
ir::EnumNames<MoveKind> enum_names(MoveKind);
inline constexpr int kMoveKinds = 11;

/// Of the two ways in which drafts send activations between groups, the one that it is not.
ir::ActivationTransfer other_transfer(ir::ActivationTransfer transfer);

/// Turns the overlap of gradients on or off, and that of gathers with it if `gathers`.
void switch_overlap(Draft& draft, bool gathers);

/// What the search may do, beyond what the job allows.
struct MoveLimits {
  bool gathers = true;       ///< With overlap: parameters during the next forward pass.
  bool chunks = true;        ///< Schedules of several chunks a stage.
  bool uniform = false;      ///< One tensor-parallel degree and micro-batch size, equal pipelines.
  bool mixed_stages = true;  ///< Several groups in a stage.
  bool experts = false;      ///< Of one stage that share the experts of its layers.
  bool unlike_experts = false;  ///< And hold unlike numbers of them, or take unlike samples.
  bool weights = false;         ///< Uneven shards of ZeRO (Draft::state_weights), if no others fit.
  std::vector<char> without = std::vector<char>(kMoveKinds, 0);  ///< By kind: ablations.
};

class DraftMoves {
 public:
  /// Keeps references.
  DraftMoves(const PlannerInput& input, const DraftCosts& costs, const DraftBalance& balance,
             const MoveLimits& limits)
      : input_(input),
        costs_(costs),
        balance_(balance),
        limits_(limits),
        experts_(input, costs, limits) {}

  /// Makes one move of that kind; false: it does not apply (the draft may be spoiled). `view` is of
  /// the draft before, or of one like it: it says which pipeline and stage limit.
  bool apply(MoveKind kind, Draft& draft, const DraftCosts::View& view, Rng& rng) const;

  /// After changes of structure: samples, layers and recomputation of all pipelines.
  bool settle(Draft& draft) const;
  /// The same for what differs from a draft before: pipelines that it had keep their layers.
  bool settle(Draft& draft, const Draft& before) const;

  const MoveLimits& limits() const { return limits_; }

 private:
  using Pipelines = ExpertMoves::Pipelines;
  std::size_t pick_pipeline(const Draft& draft, const DraftCosts::View& view, Rng& rng) const;
  Pipelines scope(const Draft& draft, std::size_t pipeline, Rng& rng) const;

  bool move_layers(Draft& draft, const DraftCosts::View& view, Rng& rng) const;
  bool move_batches(Draft& draft, const DraftCosts::View& view, Rng& rng) const;
  bool resize_batches(Draft& draft, const Pipelines& pipelines, Rng& rng) const;
  bool change_groups(Draft& draft, const Pipelines& pipelines, Rng& rng) const;
  bool split_group(DraftPipeline& pipeline, std::size_t stage, bool deep) const;
  bool merge_groups(DraftPipeline& pipeline, std::size_t stage) const;
  bool change_pipelines(Draft& draft, const DraftCosts::View& view, Rng& rng) const;
  bool cut(Draft& draft, std::size_t pipeline, int how) const;
  bool join(Draft& draft, std::size_t a, std::size_t b, int how) const;
  bool change_order(Draft& draft, const Pipelines& pipelines, Rng& rng) const;
  bool move_stage(Draft& draft, std::size_t from, Rng& rng) const;
  bool change_placement(Draft& draft, const DraftCosts::View& view, Rng& rng) const;
  bool change_idle(Draft& draft, const DraftCosts::View& view, Rng& rng) const;
  bool take_idle(DraftStage& stage, std::vector<DeviceId>& idle) const;
  bool change_zero(Draft& draft, Rng& rng) const;
  bool change_weights(Draft& draft, Rng& rng) const;
  bool change_schedule(Draft& draft, Rng& rng) const;
  bool change_transfer(Draft& draft, Rng& rng) const;

  bool one_vendor(const std::vector<DeviceId>& devices) const;
  int type_of(const DraftStage& stage) const;
  NodeId node_of(DeviceId device) const { return input_.cluster.device(device).node; }

  const PlannerInput& input_;
  const DraftCosts& costs_;
  const DraftBalance& balance_;
  const MoveLimits& limits_;
  ExpertMoves experts_;
};

}  // namespace orrery::planners
