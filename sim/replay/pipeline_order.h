/// It does not matter which of several equal pipelines has lost a stage: puts pipelines into an
/// order that depends on what they are, so that such plans are simulated once. Private to
/// sim/replay.
#pragma once
#include <cstddef>
#include <vector>

#include "models/interfaces/recovery_policy.h"
#include "models/ir/plan.h"
#include "sim/replay/device_renaming.h"

namespace orrery::sim {

/// The pipeline at each position of the new order. Pipelines are compared by shape:
/// batches, blocks and strategies of their stages, kinds of their nodes and speeds of their
/// devices, which devices share a node, and what is rerouted; equal ones stay in their order. All
/// stay where nothing is rerouted (simultaneous flows are served in that order), and where sharding
/// groups or expert parallelism count over pipelines.
std::vector<std::size_t> order_of_pipelines(const ir::Plan& plan,
                                            const std::vector<models::SlowDevice>& slow,
                                            const DeviceRenaming& renaming);

/// The plan with its pipelines in that order; reroutes lead to the same ones.
ir::Plan reordered(const ir::Plan& plan, const std::vector<std::size_t>& order);

}  // namespace orrery::sim
