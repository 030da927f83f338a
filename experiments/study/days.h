/// The setting `days` of functions that draw, repeat or replay traces.
#pragma once
#include <optional>

#include "models/base/time.h"
#include "models/config/visitor.h"

namespace orrery::experiments {

/// A plain number of days, above 0 and at most a hundred years: in nanoseconds they fit into 64
/// bits.
struct Days {
  double value = 0;
};
void describe(config::Visitor& v, Days& days);
bool from_scalar(const std::string& text, Days& out, std::string& error);

Nanoseconds to_nanoseconds(Days days);

}  // namespace orrery::experiments
