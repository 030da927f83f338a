/// Profiles of a run: files of measured times, and `scale_profile: FROM=TO`, times of one GPU type
/// as an estimate for another.
#pragma once
#include <optional>
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

/// The file of a profile of the library, or the one at that path seen from `base_folder`.
std::optional<std::string> find_profile(const config::Located<std::string>& name,
                                        const std::string& base_folder,
                                        const models::Library& library,
                                        config::Diagnostics& diagnostics);

struct LoadedProfile {
  ir::Profile profile;
  std::string hash;  ///< Of the file's content and of how it was scaled; "" without a file.
};

/// Reads the file, if there is one, and scales what it says, if that is asked for.
LoadedProfile load_profile(const std::optional<config::Located<std::string>>& file,
                           const std::optional<config::Located<std::string>>& scale,
                           const std::string& base_folder, const models::Cluster& cluster,
                           const models::Library& library, config::Diagnostics& diagnostics);

}  // namespace orrery::experiments
