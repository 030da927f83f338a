#include "tools/commands/intervals.h"

#include <fmt/format.h>

#include <cmath>

#include "models/base/text.h"
#include "tools/cli/output.h"

namespace orrery::tools {

std::string interval_cell(const experiments::Interval& interval, double scale, int digits) {
  if (!std::isfinite(interval.mean)) return "-";
  std::string text = grouped(interval.mean * scale, digits);
  const bool whole =
      std::isfinite(interval.half) &&
      std::abs(interval.high - interval.low - 2 * interval.half) <= 1e-9 * std::abs(interval.half);
  if (whole) {
    text += fmt::format(" ±{}", grouped(interval.half * scale, digits));
  } else if (std::isfinite(interval.low) && interval.high > interval.low) {
    text += fmt::format(" ({} to {})", grouped(interval.low * scale, digits),
                        grouped(interval.high * scale, digits));
  }
  return text;
}

}  // namespace orrery::tools
