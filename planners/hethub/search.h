/// First level of HetHub's tree and the depth-first search over it: how many layers the stages of
/// each GPU type get. [HetHub, sections 3.3.1 to 3.3.3]
#pragma once
#include "models/config/visitor.h"
#include "models/ir/plan.h"
#include "planners/planner.h"

namespace orrery::planners {

enum class HethubLayers { by_type, even };
enum class HethubOrder { descending, ascending, cluster };
enum class HethubCommunicator { cluster, rdma };

struct HethubSettings {
  int tensor = 0;
  int replicas = 0;
  int micro_batch_size = 1;
  double stage_bound = 0;  ///< 0 or at least 1.
  HethubLayers layers = HethubLayers::by_type;
  HethubOrder order = HethubOrder::descending;
  HethubCommunicator communicator = HethubCommunicator::cluster;
  ir::ActivationTransfer transfer = ir::ActivationTransfer::leader_broadcast;
  int evaluate_top = 1;
};

void describe(config::Visitor& v, HethubSettings& s);

/// For each tensor-parallel degree, data-parallel degree, micro-batch size, recompute and ZeRO
/// stage: all ways to give layers to GPU types. A type's layers spread over its places within one
/// layer of each other (places without a layer stay idle), stages follow the settings' order, and
/// predict_iteration ranks the leaves. Branch and bound: a branch is left when its shortest
/// possible longest stage, times the micro-batches, is no better than what the ranking would keep;
/// that loses no plan that could win. `planner` signs the plan.
PlannerResult hethub_search(const char* planner, const PlannerInput& input,
                            const HethubSettings& settings);

}  // namespace orrery::planners
