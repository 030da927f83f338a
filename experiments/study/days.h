/// The setting `days` of functions that draw, repeat or replay traces.
#pragma once
#include <optional>

#include "models/base/time.h"
#include "models/config/visitor.h"

namespace orrery::experiments {

inline constexpr double kLeastDays = 1e-5;   ///< About a second.
inline constexpr double kMostDays = 36'525;  ///< A hundred years, as traces::kLongestTime.

/// A plain number of days from kLeastDays to kMostDays.
struct Days {
  double value = 0;
};
void describe(config::Visitor& v, Days& days);
bool from_scalar(const std::string& text, Days& out, std::string& error);

Nanoseconds to_nanoseconds(Days days);

}  // namespace orrery::experiments
