/// Reroutes of ReCycle. Private to the policy. [Gandhi et al., SOSP 2024, section 3]
#pragma once
#include <utility>
#include <variant>
#include <vector>

#include "models/interfaces/evaluator.h"
#include "models/ir/plan.h"

namespace orrery::planners {

/// (pipeline, stage) of all stages with a device that is not in `live` (ascending), in order.
std::vector<std::pair<int, int>> dead_stages(const ir::Plan& plan,
                                             const std::vector<DeviceId>& live);

/// The plan, its old reroutes dropped, in which dead stages compute nothing: each of their
/// micro-batches goes to the same stage of the live pipeline that has fewest so far, counting from
/// the pipeline itself, so that peers get equal loads. A stage without a peer is named.
std::variant<ir::Plan, models::Infeasible> reroute(const ir::Plan& plan,
                                                   const std::vector<DeviceId>& live);

}  // namespace orrery::planners
