#include "models/cost/closed_form.h"

#include <algorithm>
#include <numeric>

#include "models/base/check.h"

namespace orrery::models {
namespace {

Seconds sum(std::span<const Seconds> times) {
  return std::accumulate(times.begin(), times.end(), Seconds{});
}

Seconds longest(std::span<const Seconds> times) {
  return times.empty() ? Seconds{} : *std::max_element(times.begin(), times.end());
}

}  // namespace

Seconds pipeline_time(std::span<const Seconds> stages, int micro_batches) {
  return sum(stages) + (micro_batches - 1) * longest(stages);
}

Seconds pipeline_time_with_cuts(std::span<const Seconds> stages, std::span<const Seconds> cuts,
                                int micro_batches) {
  ORRERY_CHECK(cuts.size() + 1 == stages.size(), "{} stages, {} cuts", stages.size(), cuts.size());
  return pipeline_time(stages, micro_batches) + sum(cuts);
}

Seconds gpipe_time(std::span<const Seconds> forward, std::span<const Seconds> backward,
                   int micro_batches) {
  return pipeline_time(forward, micro_batches) + pipeline_time(backward, micro_batches);
}

Seconds lock_step_time(std::span<const Seconds> stages, int micro_batches) {
  const int count = static_cast<int>(stages.size());
  Seconds total;
  for (int column = 0; column < micro_batches + count - 1; ++column) {
    const int first = std::max(0, column - micro_batches + 1);
    const int last = std::min(count - 1, column);
    total += longest(stages.subspan(static_cast<std::size_t>(first),
                                    static_cast<std::size_t>(last - first + 1)));
  }
  return total;
}

Seconds iteration_time(std::span<const Seconds> pipelines, Seconds synchronisation) {
  return longest(pipelines) + synchronisation;
}

double bubble_over_ideal(int stages, int micro_batches, int virtual_stages) {
  return static_cast<double>(stages - 1) / (static_cast<double>(micro_batches) * virtual_stages);
}

double bubble_share(int stages, int micro_batches) {
  return static_cast<double>(stages - 1) / static_cast<double>(micro_batches + stages - 1);
}

}  // namespace orrery::models
