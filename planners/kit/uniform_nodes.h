/// A cluster as planners see it that want M GPUs on each of N nodes: devices node by node, nodes of
/// different sizes cut into nodes of the largest size that divides all of them. [Metis, ATC 2024,
/// section 5.2: AMP and Alpa take nodes of 1 and 3 GPUs as four nodes of 1]
#pragma once
#include <vector>

#include "planners/planner.h"

namespace orrery::planners {

struct UniformNodes {
  std::vector<DeviceId> devices;  ///< Those of the input, node by node: rank order.
  int per_node = 0;               ///< M; 0 without devices.
  int machines = 0;               ///< Nodes of the cluster that have some of the devices.

  int nodes() const { return per_node == 0 ? 0 : static_cast<int>(devices.size()) / per_node; }
};

UniformNodes uniform_nodes(const PlannerInput& input);

/// Degrees of tensor parallelism that model and job allow and that divide M, so that groups of
/// consecutive ranks stay inside a node. A degree that would join devices of two vendors in a group
/// is left out and counted in `constraints`. Ascending.
std::vector<int> uniform_degrees(const UniformNodes& nodes, const PlannerInput& input,
                                 std::vector<ConstraintCost>& constraints);

}  // namespace orrery::planners
