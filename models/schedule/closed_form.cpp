#include "models/schedule/closed_form.h"

#include <algorithm>
#include <numeric>

namespace orrery::models {
namespace {

Seconds longest_of(std::span<const Seconds> times) {
  return times.empty() ? Seconds{} : *std::max_element(times.begin(), times.end());
}

}  // namespace

Seconds pipeline_time(std::span<const Seconds> stages, int micro_batches) {
  return std::accumulate(stages.begin(), stages.end(), Seconds{}) +
         (micro_batches - 1) * longest_of(stages);
}

Seconds lock_step_time(std::span<const Seconds> stages, int micro_batches) {
  const int count = static_cast<int>(stages.size());
  Seconds total;
  for (int column = 0; column < micro_batches + count - 1; ++column) {
    const int first = std::max(0, column - micro_batches + 1);
    const int last = std::min(count - 1, column);
    total += longest_of(stages.subspan(first, last - first + 1));
  }
  return total;
}

Seconds iteration_time(std::span<const Seconds> pipelines, Seconds synchronization) {
  return longest_of(pipelines) + synchronization;
}

std::vector<Seconds> both_passes(std::span<const StageTime> stages) {
  std::vector<Seconds> both;
  for (const StageTime& stage : stages) both.push_back(stage.forward + stage.backward);
  return both;
}

}  // namespace orrery::models
