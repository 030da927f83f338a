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

Seconds interleaved_time(std::span<const Seconds> stages, int micro_batches, int chunks) {
  if (stages.empty()) return {};
  const Seconds slowest = longest(stages);
  Seconds fill;
  for (const Seconds stage : stages) fill += stage;
  return micro_batches * slowest + (fill - slowest) / chunks;
}

Seconds zero_bubble_time(std::span<const Seconds> forward, std::span<const Seconds> input,
                         std::span<const Seconds> weights, int micro_batches) {
  if (forward.empty()) return {};
  Seconds fill;
  Seconds slowest;
  Seconds fill_of_slowest;
  for (std::size_t s = 0; s < forward.size(); ++s) {
    const Seconds own = forward[s] + input[s] - std::min(forward[s], weights[s]);
    const Seconds whole = forward[s] + input[s] + weights[s];
    fill += own;
    if (slowest < whole) {
      slowest = whole;
      fill_of_slowest = own;
    }
  }
  return micro_batches * slowest + fill - fill_of_slowest;
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

Seconds iteration_time(std::span<const Seconds> pipelines, Seconds synchronization) {
  return longest(pipelines) + synchronization;
}

double bubble_over_ideal(int stages, int micro_batches, int virtual_stages) {
  return static_cast<double>(stages - 1) / (static_cast<double>(micro_batches) * virtual_stages);
}

double bubble_share(int stages, int micro_batches) {
  return static_cast<double>(stages - 1) / static_cast<double>(micro_batches + stages - 1);
}

}  // namespace orrery::models
