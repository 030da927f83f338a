/// Which replicas are left after a loss, and which join again. Private to the policy torchft.
#pragma once
#include <variant>
#include <vector>

#include "models/interfaces/evaluator.h"
#include "models/ir/plan.h"
#include "models/spec/cluster.h"

namespace orrery::planners {

/// The pipelines that have all their devices in `live`, with micro-batches for the whole batch:
/// split as though all pipelines of `plan` had ended together. None: no pipeline is left, or their
/// micro-batches differ in size. Reroutes are dropped.
std::variant<ir::Plan, models::Infeasible> surviving_pipelines(const ir::Plan& plan,
                                                               const models::Cluster& cluster,
                                                               const std::vector<DeviceId>& live);

/// Adds pipelines on devices of `live` that the plan does not use, as many as fit: first those of
/// `home` (may be null) whose own devices these are, then copies of each kind of pipeline that the
/// plan and `home` have, in their order, each group on devices of the same type in one node, lowest
/// ids first. `home` counts only if it shares a kind of pipeline with the plan, so that speeds can
/// be compared, and has micro-batches of the same size. The batch is split as though all ended
/// together, or as in `home` once the pipelines are just those of `home`. Returns how many it
/// added.
int add_pipelines(ir::Plan& plan, const ir::Plan* home, const models::Cluster& cluster,
                  const std::vector<DeviceId>& live);

}  // namespace orrery::planners
