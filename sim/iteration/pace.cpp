#include "sim/iteration/pace.h"

#include <algorithm>
#include <cstddef>

#include "models/base/check.h"

namespace orrery::sim {

Seconds earliest(const RankEnds& ends) {
  return ends.empty() ? Seconds{} : *std::min_element(ends.begin(), ends.end());
}

Seconds latest(const RankEnds& ends) {
  return ends.empty() ? Seconds{} : *std::max_element(ends.begin(), ends.end());
}

namespace {

bool all_advanced_alike(const RankEnds& before, const RankEnds& after, Seconds precision) {
  if (after.empty()) return true;
  Seconds least = after.front() - before.front();
  Seconds most = least;
  for (std::size_t r = 0; r < after.size(); ++r) {
    least = std::min(least, after[r] - before[r]);
    most = std::max(most, after[r] - before[r]);
  }
  return most - least <= std::max(precision, kSettled * most);
}

}  // namespace

Pace find_pace(std::span<const RankEnds> ends, Seconds precision) {
  ORRERY_CHECK(ends.size() >= 2, "{} rows of ends", ends.size());
  const std::size_t last = ends.size() - 1;
  const std::size_t most = std::max<std::size_t>(1, last / 2);
  std::size_t window = 1;
  while (window < most && !all_advanced_alike(ends[last - window], ends[last], precision)) {
    ++window;
  }
  Pace pace;
  pace.window = static_cast<int>(window);
  pace.settled = all_advanced_alike(ends[last - window], ends[last], precision);
  pace.period = (latest(ends[last]) - latest(ends[last - window])) / static_cast<double>(window);
  return pace;
}

}  // namespace orrery::sim
