/// What no plan can beat: a lower bound on the iteration time that the simulator can report for any
/// plan of a job on a cluster. Proof in docs/equations.md.
#pragma once
#include <string>

#include "planners/kit/stage_costs.h"
#include "planners/planner.h"

namespace orrery::planners {

struct LowerBound {
  Seconds seconds;
  std::string what;  ///< What makes it: "computation", "network between nodes", "one sample".
};

/// The largest of
/// - computation: each GPU type takes the least time per sample and layer that any tensor-parallel
///   degree, number of samples and division of experts gives it (in a mix of types for what
///   surrounds experts and for experts apart), each parameter is stepped once, all devices work
///   all the time, samples are divisible;
/// - network: as computation, but a node whose links out do not carry the gradients of the whole
///   model in that time holds no whole replica (one node of all may), so that each sample that it
///   touches crosses its links once in each direction (where experts can be apart from the rest,
///   their share of it);
/// - one sample: its way through all layers, each on the device and degree that are fastest for it.
LowerBound lower_bound(const PlannerInput& input, const StageCosts& costs);

}  // namespace orrery::planners
