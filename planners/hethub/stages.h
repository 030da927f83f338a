/// Second and third level of HetHub's tree: the devices of each GPU type cut into places for
/// stages, each `replicas` tensor-parallel groups, and what a stage costs on a place.
/// [HetHub, section 3.3.1]
#pragma once
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "models/base/units.h"
#include "models/ir/plan.h"
#include "planners/hethub/predictor.h"
#include "planners/kit/stage_costs.h"
#include "planners/planner.h"

namespace orrery::planners {

/// What all stages of a plan have in common.
struct HethubDegrees {
  int tensor = 1;
  int replicas = 1;
  int micro_batch_size = 1;
  int micro_batches = 1;  ///< Of each replica.
  ir::Recompute recompute = ir::Recompute::none;
  int zero = 0;
};

/// Layers of a stage with one micro-batch in flight.
StageShape hethub_shape(int first, int layers, const HethubDegrees& degrees);

/// The devices of a stage: one tensor-parallel group for each replica.
struct HethubPlace {
  int gpu_type = 0;
  std::vector<std::vector<DeviceId>> groups;
};

/// Tensor-parallel groups of `tensor` devices of one GPU type on one node, in device order; by GPU
/// type of the cluster. What is left on a node stays idle.
std::vector<std::vector<std::vector<DeviceId>>> hethub_groups(const PlannerInput& input,
                                                              int tensor);

/// Time of n layers of one micro-batch, forward and backward, on one of the groups, at position n
/// (0 to L): the paper's table of 1 to N layers. The shortest over all ranges of n layers, so that
/// embedding and head do not count, and over the groups; with equal layers n times the time of one,
/// and never more than what a stage of n layers takes. [HetHub, section 3.3.3]
std::vector<Seconds> hethub_reference(const StageCosts& costs,
                                      const std::vector<std::vector<DeviceId>>& groups,
                                      const HethubDegrees& degrees);

/// A stage at the leaf of the tree.
struct HethubSlot {
  int place = 0;  ///< Index into HethubStages::places().
  int layers = 1;
};

/// Stages over the places of one (tensor, replicas). Keeps references to the input and the costs.
/// Caches; not for concurrent use.
class HethubStages {
 public:
  HethubStages(const PlannerInput& input, const StageCosts& costs, ir::ActivationTransfer transfer,
               int tensor, int replicas);

  /// Type by type in the cluster's order.
  const std::vector<HethubPlace>& places() const { return places_; }

  /// The stages in pipeline order, each as slow as its slowest replica.
  std::vector<PredictedStage> predict(std::span<const HethubSlot> order,
                                      const HethubDegrees& degrees) const;
  /// Every stage has the memory that 1F1B needs of it. [check_memory]
  bool fits(std::span<const HethubSlot> order, const HethubDegrees& degrees) const;
  ir::Plan build(std::span<const HethubSlot> order, const HethubDegrees& degrees) const;

 private:
  StageCosts::Passes passes(int place, const StageShape& shape) const;
  Seconds hop(int from, int to, int layer, int samples) const;
  Seconds all_reduce(int place, Bytes gradients) const;

  const PlannerInput& input_;
  const StageCosts& costs_;
  ir::ActivationTransfer transfer_;
  int tensor_;
  std::vector<HethubPlace> places_;
  /// By place: one group for each kind of links among its members.
  std::vector<std::vector<std::vector<DeviceId>>> distinct_;
  mutable std::map<std::tuple<int, int, double>, Seconds> hops_;
  mutable std::map<std::pair<int, double>, Seconds> all_reduces_;
};

/// PlannerEntry::estimate.
OwnEstimate hethub_estimate;

}  // namespace orrery::planners
