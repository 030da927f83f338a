/// The median of measurements.
#pragma once
#include <algorithm>
#include <vector>

#include "models/base/check.h"

namespace orrery {

/// Middle of the values, mean of the two middle ones; needs at least one.
inline double median(std::vector<double> values) {
  ORRERY_CHECK(!values.empty(), "the median of nothing");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

}  // namespace orrery
