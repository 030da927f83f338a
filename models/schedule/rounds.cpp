#include "models/schedule/rounds.h"

#include <algorithm>
#include <limits>

#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

int divide_up(int a, int b) { return (a + b - 1) / b; }

/// Micro-batches that belong together.
int group_of(const ir::Plan& plan, const ir::Pipeline& pipeline) {
  const ScheduleEntry* schedule = find_schedule(plan.schedule);
  return schedule != nullptr && schedule->uses_chunks
             ? std::max(1, static_cast<int>(pipeline.stages.size()))
             : 1;
}

}  // namespace

int most_rounds(const ir::Plan& plan) {
  int most = std::numeric_limits<int>::max();
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    most = std::min(most, divide_up(pipeline.micro_batches, group_of(plan, pipeline)));
  }
  return plan.pipelines.empty() ? 1 : std::max(1, most);
}

int gradient_rounds(const ir::Plan& plan, int asked) {
  if (asked == 1) return 1;
  const int most = most_rounds(plan);
  return asked == 0 ? most : std::min(asked, most);
}

int round_end(const ir::Plan& plan, const ir::Pipeline& pipeline, int round, int rounds) {
  const int group = group_of(plan, pipeline);
  const int groups = divide_up(pipeline.micro_batches, group);
  return std::min(pipeline.micro_batches, divide_up((round + 1) * groups, rounds) * group);
}

}  // namespace orrery::models
