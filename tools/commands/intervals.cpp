#include "tools/commands/intervals.h"

#include <fmt/format.h>

#include <cmath>

#include "tools/cli/output.h"

namespace orrery::tools {

std::string interval_cell(const experiments::Interval& interval, double scale, int digits) {
  if (!std::isfinite(interval.mean)) return "-";
  std::string text = grouped(interval.mean * scale, digits);
  if (std::isfinite(interval.half)) {
    text += fmt::format(" ±{}", grouped(interval.half * scale, digits));
  } else if (std::isfinite(interval.low) && interval.high > interval.low) {
    text += fmt::format(" ({} to {})", grouped(interval.low * scale, digits),
                        grouped(interval.high * scale, digits));
  }
  return text;
}

}  // namespace orrery::tools
