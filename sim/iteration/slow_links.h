/// Links that IterationOptions makes slower, and the paths over them. Private to sim/iteration.
#pragma once
#include <map>

#include "models/base/ids.h"
#include "models/cost/path_function.h"
#include "models/spec/topology.h"
#include "sim/iteration/options.h"

namespace orrery::sim {

/// Slowdown of each link that has one.
using LinkFactors = std::map<LinkId, double>;
LinkFactors link_factors(const models::Topology& topology, const IterationOptions& options);

/// Keeps references.
models::PathFunction path_function(const models::Topology& topology, const LinkFactors& factors);

}  // namespace orrery::sim
