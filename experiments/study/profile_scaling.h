/// `scale_profile: FROM=TO`: a profile of one GPU type as an estimate for another.
#pragma once
#include <string>

#include "models/config/diagnostics.h"
#include "models/config/visitor.h"
#include "models/ir/profile.h"
#include "models/spec/cluster.h"
#include "models/spec/library.h"

namespace orrery::experiments {

/// Carries out "FROM=TO", or several with commas between them, one after the other
/// (models/cost/scale_profile.h). FROM is a GPU type of the cluster or the library that the profile
/// says something about, TO one of the cluster; everything else is a problem at `asked`.
ir::Profile scaled_profile(ir::Profile profile, const config::Located<std::string>& asked,
                           const models::Cluster& cluster, const models::Library& library,
                           config::Diagnostics& diagnostics);

}  // namespace orrery::experiments
