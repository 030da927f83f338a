/// Order of forward and backward passes of one stage. Each schedule is one .cpp behind this
/// interface.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "models/ir/plan.h"

namespace orrery::models {

enum class TaskKind : std::uint8_t { forward, backward, backward_input, backward_weight };

/// One pass of one micro-batch through one chunk (virtual stage) of a stage.
struct Task {
  TaskKind kind = TaskKind::forward;
  std::int32_t micro_batch = 0;
  std::int32_t chunk = 0;
  auto operator<=>(const Task&) const = default;
};

/// What a schedule is asked about.
struct ScheduleQuery {
  int stages = 1;
  int stage = 0;
  int micro_batches = 1;
  int chunks = 1;  ///< Virtual stages per device.
};

struct ScheduleEntry {
  ir::ScheduleKind kind;
  const char* name;
  const char* source;
  const char* summary;
  bool uses_chunks = false;
  /// Tasks of the stage in the order in which it runs them.
  std::vector<Task> (*tasks)(const ScheduleQuery& query) = nullptr;
  /// Most micro-batches (of one chunk each) whose activations the stage holds at once.
  int (*in_flight)(const ScheduleQuery& query) = nullptr;
};

/// All schedules that lowering knows.
std::span<const ScheduleEntry* const> schedules();
/// nullptr when the schedule is declared in the plan format but not available.
const ScheduleEntry* find_schedule(ir::ScheduleKind kind);

}  // namespace orrery::models
