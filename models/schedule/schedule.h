/// Order of forward and backward passes of one stage, and what follows from it. A schedule is one
/// .cpp file with its entry of the catalog: all that others ask about a schedule is in the entry.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/base/units.h"
#include "models/ir/plan.h"
#include "models/ir/program.h"

namespace orrery::models {

/// One pass of one micro-batch through one chunk (virtual stage) of a stage.
struct StagePass {
  ir::OpKind kind = ir::OpKind::forward;  ///< A pass.
  std::int32_t micro_batch = 0;
  std::int32_t chunk = 0;
  auto operator<=>(const StagePass&) const = default;
};

/// What a schedule is asked about.
struct ScheduleQuery {
  int stages = 1;
  int stage = 0;
  int micro_batches = 1;
  int chunks = 1;  ///< Virtual stages per device.
};

/// What a stage takes for one micro-batch over all of its chunks, communication included.
struct StageTime {
  Seconds forward;
  Seconds backward;  ///< Gradients of input and weights.
  Seconds weights;   ///< The part of `backward` that computes the gradients of the weights.
};

struct ScheduleEntry {
  ir::ScheduleKind kind;
  const char* source;
  const char* summary;
  /// A stage runs several chunks. Micro-batches then pass in groups of as many as there are stages,
  /// and the gradients of all chunks are complete only after a whole group.
  bool uses_chunks = false;
  /// A stage runs two chunks, and micro-batches visit the stages of the second one in reverse.
  bool folds_back = false;
  /// Each of the two chunks has the whole model: micro-batches are fed from both ends, even ones
  /// pass through the first chunks and odd ones through the second.
  bool both_ways = false;
  /// Passes of the stage in the order in which it runs them.
  std::vector<StagePass> (*passes)(const ScheduleQuery& query) = nullptr;
  /// Most micro-batches (of one chunk each) whose activations the stage holds at once, the one in
  /// its backward pass included.
  int (*in_flight)(const ScheduleQuery& query) = nullptr;
  /// Most micro-batches that have computed the gradients of their input, but not those of the
  /// weights. nullptr where the backward pass is not split.
  int (*weights_postponed)(const ScheduleQuery& query) = nullptr;
  /// Iteration time of a pipeline in closed form, without gradient synchronization.
  Seconds (*pipeline_time)(std::span<const StageTime> stages, int micro_batches,
                           int chunks) = nullptr;

  const char* name() const;
  bool splits_backward() const { return weights_postponed != nullptr; }
  /// The stage that micro-batches visit as the `step`-th (from 0) in a chunk.
  int stage_at(int chunk, int step, int stages) const {
    return folds_back && chunk % 2 == 1 ? stages - 1 - step : step;
  }
  /// Whether the micro-batch passes through the chunk.
  bool visits(int micro_batch, int chunk) const { return !both_ways || micro_batch % 2 == chunk; }
  /// As GPipe: a stage holds all micro-batches, however many there are.
  bool holds_whole_batch() const { return in_flight({.micro_batches = 2}) == 2; }
};

/// All schedules that lowering knows.
std::span<const ScheduleEntry* const> schedules();
/// nullptr when the schedule is declared in the plan format but not available.
const ScheduleEntry* find_schedule(ir::ScheduleKind kind);
/// As find_schedule, of a schedule that is known to be available.
const ScheduleEntry& schedule_entry(ir::ScheduleKind kind);

/// The available ones among `allowed` that run one chunk per stage, in their order.
std::vector<ir::ScheduleKind> plain_schedules(std::span<const ir::ScheduleKind> allowed);

/// What a planner takes that does not search schedules: 1F1B if it is among plain_schedules(),
/// else the first of them; nullopt if there is none.
std::optional<ir::ScheduleKind> preferred_schedule(std::span<const ir::ScheduleKind> allowed);

}  // namespace orrery::models
