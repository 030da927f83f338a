/// Reroutes of ReCycle. Private to the policy. [Gandhi et al., SOSP 2024, section 3]
#pragma once
#include <span>
#include <string>
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
/// micro-batches goes to the same stage of the live pipeline that has fewest so far, beginning
/// behind the own one, so that peers get equal loads. A stage without a peer is named.
std::variant<ir::Plan, models::Infeasible> reroute(const ir::Plan& plan,
                                                   const std::vector<DeviceId>& live);

/// Lower bound on an iteration of D pipelines of equal stages with M micro-batches each, f[s] of
/// the D copies of stage s dead: max over s of s F + m (F + B_in) + max(s B_in, m B_w), where
/// m = M D / (D - f[s]) micro-batches fall to each live copy. The first one reaches stage s after s
/// forward passes; the last input gradient passes s stages back while weights' gradients that have
/// waited are computed. (B_w = 0, B_in = B: the backward pass is whole.) `staggered`: when each
/// stage steps on its own and begins the next iteration, the bound on the time between two
/// iterations: m (F + B_in + B_w), as a stage works behind its predecessors, but no longer in each.
double recycle_bound(int pipelines, int micro_batches, double forward, double backward_input,
                     double backward_weight, std::span<const int> failed, bool staggered = false);

}  // namespace orrery::planners
