/// Whale's memory-constrained load balancing: work in proportion to compute, then units of work
/// moved from devices without memory (peaks) to devices with time (valleys).
/// [Whale, Jia et al. 2022, hardware-aware load balancing]
#pragma once
#include <cstddef>
#include <functional>
#include <vector>

namespace orrery::planners {

/// Memory that device (or stage) i needs for `load` units, over what it has: above 1 it does not
/// fit. Non-decreasing in the load.
using WhaleMemory = std::function<double(std::size_t i, int load)>;

struct WhaleLoads {
  std::vector<int> loads;  ///< At least 1 each, in all the total; also where they do not fit.
  bool fits = false;
};

/// Shares `total` units, at least one each, in proportion to `compute` (largest remainders). While
/// some do not fit, one unit goes from the peak (of those that do not fit the one with the highest
/// memory utilization) to the valley (of the others the one with the smallest load / compute); a
/// valley that cannot take one more is left out from then on. Ties go to the lower index. Ends when
/// all fit, no valley is left, or the peak has one unit only. Finds loads that fit whenever there
/// are some. 1 <= compute.size() <= total.
WhaleLoads whale_balance(int total, const std::vector<double>& compute, const WhaleMemory& memory);

}  // namespace orrery::planners
