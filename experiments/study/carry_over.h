/// A plan that was made for one cluster on the GPUs of another: which node takes whose place. What
/// `--any-cluster` does.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "models/ir/plan.h"
#include "models/spec/cluster.h"

namespace orrery::experiments {

struct CarriedOver {
  ir::Plan plan;                     ///< Of the new cluster, without its old hash.
  std::vector<std::string> mapping;  ///< In words, nodes that go alike together.
  std::string problem;               ///< Why it cannot be carried over; "": it is.
};

/// Nodes that the plan uses go whole to nodes of `cluster` with as many devices of `left` or more:
/// each to one of its own GPU type where there is one, else to one of its own size, else to a
/// larger one, in the order of both clusters. Where nobody knows the cluster that the plan was
/// made for (null), its i-th device is the i-th of `left`.
CarriedOver carry_over(const ir::Plan& plan, const models::Cluster* made_for,
                       const models::Cluster& cluster, const std::vector<DeviceId>& left);

}  // namespace orrery::experiments
