#include "sim/replay/checkpoint_schedule.h"

#include <algorithm>
#include <utility>

namespace orrery::sim {

CheckpointSchedule schedule_checkpoints(std::vector<models::CheckpointLevel> levels,
                                        const models::PlanPointer& plan, Seconds time,
                                        IterationConditions conditions,
                                        const IterationTimer* timer) {
  CheckpointSchedule schedule;
  std::vector<std::vector<models::StateTransfer>> per_second;
  bool any = false;
  for (models::CheckpointLevel& level : levels) {
    auto transfers = std::exchange(level.background, {});
    const std::int64_t left = (level.persist - level.stall).count;
    if (timer == nullptr || left <= 0) transfers.clear();
    const std::int64_t whole = to_nanoseconds(time).count;
    const std::int64_t count =
        transfers.empty() ? 0 : std::min(level.every, (left + whole - 1) / whole);
    for (models::StateTransfer& transfer : transfers) {
      transfer.bytes = transfer.bytes / (static_cast<double>(count) * time.value);
    }
    any |= !transfers.empty();
    schedule.background_iterations.push_back(count);
    per_second.push_back(std::move(transfers));
  }
  schedule.levels = std::move(levels);
  if (!any) {
    schedule.background_iterations.clear();
    return schedule;
  }
  schedule.time_with_background = [timer, plan, conditions = std::move(conditions),
                                   per_second = std::move(per_second)](std::uint32_t active) {
    IterationConditions loaded = conditions;
    for (std::size_t i = 0; i < per_second.size(); ++i) {
      if ((active >> i & 1) == 0) continue;
      loaded.background.insert(loaded.background.end(), per_second[i].begin(), per_second[i].end());
    }
    return to_nanoseconds(timer->time(*plan, loaded));
  };
  return schedule;
}

}  // namespace orrery::sim
