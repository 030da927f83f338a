#include <array>

#include "models/schedule/schedule.h"

namespace orrery::models {

extern const ScheduleEntry kGpipe;
extern const ScheduleEntry kInterleaved;
extern const ScheduleEntry kOneFOneB;
extern const ScheduleEntry kZeroBubble;

std::span<const ScheduleEntry* const> schedules() {
  static constexpr std::array kCatalog = {&kGpipe, &kOneFOneB, &kInterleaved, &kZeroBubble};
  return kCatalog;
}

const ScheduleEntry* find_schedule(ir::ScheduleKind kind) {
  for (const ScheduleEntry* entry : schedules()) {
    if (entry->kind == kind) return entry;
  }
  return nullptr;
}

}  // namespace orrery::models
