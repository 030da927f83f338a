/// What the flags of `orrery replay` say, as a study.
#pragma once
#include <string>

#include "experiments/study/replay_file.h"
#include "models/config/diagnostics.h"
#include "tools/cli/args.h"

namespace orrery::tools {

/// The study of the file, with the flags --policy and --seeds over it; or that of the flags.
experiments::ReplayStudy study_of(const ReplayArgs& args, config::Diagnostics& diagnostics);

}  // namespace orrery::tools
