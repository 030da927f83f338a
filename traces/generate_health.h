/// Disturbances that hit links and the whole job, whoever is there. Private to traces/.
#pragma once
#include <vector>

#include "models/base/rng.h"
#include "models/base/time.h"
#include "models/ir/cluster_event.h"
#include "traces/generate_settings.h"

namespace orrery::traces {

/// degrade and restore of each link, from streams forked off `root`. A link that is degraded does
/// not degrade again.
std::vector<ir::ClusterEvent> draw_links(const DegradedLinks& links, Nanoseconds horizon,
                                         const Rng& root);

/// `slow` of the job at each step whose speed (at its middle, four decimals) differs from the last.
std::vector<ir::ClusterEvent> draw_daily(const DailyVariation& daily, Nanoseconds horizon);

}  // namespace orrery::traces
