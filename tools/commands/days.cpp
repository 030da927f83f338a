#include "tools/commands/days.h"

#include <fmt/format.h>

#include "models/base/units.h"
#include "models/config/units.h"
#include "tools/cli/flags.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {
namespace {

constexpr double kDay = 86400;  ///< Seconds.

}  // namespace

std::optional<Nanoseconds> days_flag(const Text& text, config::Diagnostics& diagnostics) {
  if (!text) return std::nullopt;
  config::TextError error;
  const auto days = config::parse_number(*text, error);
  if (!days) {
    diagnostics.add(at_flag("--days"), fmt::format("'{}' is not a number of days", *text),
                    "for example --days 0.5");
  } else if (!(*days > 0) || *days > kMostDays) {
    diagnostics.add(at_flag("--days"),
                    fmt::format("'{}' is not above 0 and at most {}", *text, kMostDays));
  } else {
    return to_nanoseconds(Seconds{*days * kDay});
  }
  return std::nullopt;
}

}  // namespace orrery::tools
