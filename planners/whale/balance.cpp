#include "planners/whale/balance.h"

#include <algorithm>

#include "models/base/check.h"
#include "planners/kit/partition_dp.h"

namespace orrery::planners {

WhaleLoads whale_balance(int total, const std::vector<double>& compute, const WhaleMemory& memory) {
  const auto shares = balance_layers(total, compute, 1);
  ORRERY_CHECK(shares.has_value(), "{} units for {} devices", total, compute.size());
  WhaleLoads result{*shares, false};
  std::vector<int>& loads = result.loads;
  std::vector<double> use(loads.size());
  std::vector<std::size_t> over;
  std::vector<std::size_t> free;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    use[i] = memory(i, loads[i]);
    (use[i] > 1 ? over : free).push_back(i);
  }
  const auto less_busy = [&](std::size_t a, std::size_t b) {
    return loads[a] / compute[a] < loads[b] / compute[b];
  };
  while (!over.empty() && !free.empty()) {
    const auto peak = std::max_element(
        over.begin(), over.end(), [&](std::size_t a, std::size_t b) { return use[a] < use[b]; });
    if (loads[*peak] == 1) return result;
    const auto valley = std::min_element(free.begin(), free.end(), less_busy);
    const double raised = memory(*valley, loads[*valley] + 1);
    if (raised > 1) {
      free.erase(valley);
      continue;
    }
    ++loads[*valley];
    use[*valley] = raised;
    --loads[*peak];
    use[*peak] = memory(*peak, loads[*peak]);
    if (use[*peak] <= 1) over.erase(peak);
  }
  result.fits = over.empty();
  return result;
}

}  // namespace orrery::planners
