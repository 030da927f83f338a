/// First level of HetHub's tree and the depth-first search over it: how many layers the stages of
/// each GPU type get. [HetHub, sections 3.3.1 to 3.3.3]
#pragma once
#include "models/ir/plan.h"
#include "planners/planner.h"

namespace orrery::planners {

enum class HethubOrder { descending, ascending, cluster };
enum class HethubCommunicator { cluster, rdma };

struct HethubSettings {
  int tensor = 0;            ///< 0: all degrees.
  int replicas = 0;          ///< 0: all degrees.
  int micro_batch_size = 1;  ///< 0: all sizes.
  double stage_bound = 0;    ///< 0: none; else at least 1.
  bool even = false;         ///< Stages of all types within one layer, as uniform slicing has them.
  HethubOrder order = HethubOrder::descending;
  HethubCommunicator communicator = HethubCommunicator::cluster;
  ir::ActivationTransfer transfer = ir::ActivationTransfer::leader_broadcast;
  int evaluate_top = 1;
};

/// For each tensor-parallel degree, data-parallel degree, micro-batch size, recompute and ZeRO
/// stage: all ways to give layers to GPU types. A type's layers spread over its places within one
/// layer of each other (places without a layer stay idle), stages follow the settings' order, and
/// predict_iteration ranks the leaves. Branch and bound: a branch is left when its shortest
/// possible longest stage, times the micro-batches, is no better than what the ranking would keep;
/// that loses no plan that could win. `planner` signs the plan.
PlannerResult hethub_search(const char* planner, const PlannerInput& input,
                            const HethubSettings& settings);

}  // namespace orrery::planners
