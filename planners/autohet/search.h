/// AutoHet's search: rounds over TP dimensions, micro-batch sizes and recomputation; in each the
/// groupings that are best by Eq. 3, mapped, divided into layers and priced by Eq. 1.
#pragma once
#include "planners/autohet/settings.h"
#include "planners/planner.h"

namespace orrery::planners {

/// The plan that is best by Eq. 1, signed with `name`. Work is counted in partial groupings.
PlannerResult search_autohet(const PlannerInput& input, const AutohetSettings& settings,
                             const char* name);

}  // namespace orrery::planners
