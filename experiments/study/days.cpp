#include "experiments/study/days.h"

#include <fmt/format.h>

#include "models/base/units.h"
#include "models/config/units.h"

namespace orrery::experiments {
namespace {

constexpr double kDay = 86400;  ///< Seconds.

}  // namespace

void describe(config::Visitor& v, Days& days) { v.required("days", days.value, "1e-5 to 36525"); }

bool from_scalar(const std::string& text, Days& out, std::string& error) {
  config::TextError wrong;
  auto days = config::parse_number(text, wrong);
  if (!days) {  // "30 days", "12 h"
    std::string unit = text;
    if (unit.ends_with(" days")) unit.pop_back();
    const auto seconds = config::parse_quantity(unit, config::unit_table(Seconds{}), wrong);
    if (seconds && *seconds != 0) days = *seconds / kDay;
  }
  if (!days) {
    error =
        fmt::format("'{}' is not a number of days, for example 0.5, \"30 days\" or \"12 h\"", text);
  } else if (!(*days >= kLeastDays) || *days > kMostDays) {
    error = fmt::format("'{}' is not from {} to {}", text, kLeastDays, kMostDays);
  } else {
    out.value = *days;
    return true;
  }
  return false;
}

Nanoseconds to_nanoseconds(Days days) { return to_nanoseconds(Seconds{days.value * kDay}); }

}  // namespace orrery::experiments
