/// The flag --days of commands that draw, repeat or replay traces.
#pragma once
#include <optional>

#include "models/base/time.h"
#include "models/config/diagnostics.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {

/// A hundred years: in nanoseconds they fit into 64 bits.
inline constexpr double kMostDays = 36525;

/// A plain number of days above 0 and at most kMostDays; none without the flag, and, with a
/// problem, of anything else.
std::optional<Nanoseconds> days_flag(const Text& text, config::Diagnostics& diagnostics);

}  // namespace orrery::tools
