#include "planners/kit/uniform_nodes.h"

#include <fmt/format.h>

#include <map>
#include <numeric>

#include "planners/kit/plan_parts.h"

namespace orrery::planners {

UniformNodes uniform_nodes(const PlannerInput& input) {
  std::map<NodeId, std::vector<DeviceId>> by_node;
  for (const DeviceId d : input.devices) by_node[input.cluster.device(d).node].push_back(d);
  UniformNodes result;
  result.machines = static_cast<int>(by_node.size());
  for (const auto& [node, members] : by_node) {
    result.per_node = std::gcd(result.per_node, static_cast<int>(members.size()));
    result.devices.insert(result.devices.end(), members.begin(), members.end());
  }
  return result;
}

std::vector<int> uniform_degrees(const UniformNodes& nodes, const PlannerInput& input,
                                 std::vector<ConstraintCost>& constraints) {
  std::vector<int> result;
  ConstraintCost vendors{"one vendor per tensor-parallel group", 0, std::nullopt, ""};
  for (const int degree : tensor_degrees(input.workload, input.job, nodes.per_node)) {
    if (nodes.per_node % degree != 0) continue;
    if (one_vendor_per_group(nodes.devices, degree, input.cluster)) {
      result.push_back(degree);
    } else {
      ++vendors.rejected;
      vendors.witness = fmt::format("TP {} would join devices of two vendors", degree);
    }
  }
  if (vendors.rejected > 0) constraints.push_back(std::move(vendors));
  return result;
}

}  // namespace orrery::planners
