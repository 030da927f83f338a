/// What `orrery execute` prints. Private to the execute command.
#pragma once
#include <string>

#include "executor/launcher/launcher.h"

namespace orrery::tools {

/// "step   12  loss 4.321098  0.0123 s  12,345 tokens/s"
std::string step_text(const executor::StepLine& line);

/// Totals, ranks, bytes by pair, recoveries.
std::string launch_text(const executor::LaunchReport& report);

/// The same as JSON.
std::string launch_json(const executor::LaunchReport& report);

}  // namespace orrery::tools
