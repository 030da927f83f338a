#include <algorithm>
#include <array>

#include "models/base/check.h"
#include "models/ir/names.h"
#include "models/schedule/schedule.h"

namespace orrery::models {

extern const ScheduleEntry kDualPipe;
extern const ScheduleEntry kGpipe;
extern const ScheduleEntry kInterleaved;
extern const ScheduleEntry kOneFOneB;
extern const ScheduleEntry kZbV;
extern const ScheduleEntry kZeroBubble;

std::span<const ScheduleEntry* const> schedules() {
  static constexpr std::array kCatalog = {&kGpipe,      &kOneFOneB, &kInterleaved,
                                          &kZeroBubble, &kZbV,      &kDualPipe};
  return kCatalog;
}

const char* ScheduleEntry::name() const { return ir::name_of(kind); }

const ScheduleEntry* find_schedule(ir::ScheduleKind kind) {
  for (const ScheduleEntry* entry : schedules()) {
    if (entry->kind == kind) return entry;
  }
  return nullptr;
}

const ScheduleEntry& schedule_entry(ir::ScheduleKind kind) {
  const ScheduleEntry* entry = find_schedule(kind);
  ORRERY_CHECK(entry != nullptr, "schedule {} is not available", ir::name_of(kind));
  return *entry;
}

std::vector<ir::ScheduleKind> plain_schedules(std::span<const ir::ScheduleKind> allowed) {
  std::vector<ir::ScheduleKind> plain;
  for (const ir::ScheduleKind kind : allowed) {
    const ScheduleEntry* entry = find_schedule(kind);
    if (entry != nullptr && !entry->uses_chunks) plain.push_back(kind);
  }
  return plain;
}

std::optional<ir::ScheduleKind> preferred_schedule(std::span<const ir::ScheduleKind> allowed) {
  const std::vector<ir::ScheduleKind> plain = plain_schedules(allowed);
  if (plain.empty()) return std::nullopt;
  const auto usual = std::find(plain.begin(), plain.end(), ir::ScheduleKind::one_f_one_b);
  return usual == plain.end() ? plain.front() : *usual;
}

}  // namespace orrery::models
