/// Interleaved 1F1B: each stage holds v chunks of blocks; micro-batches pass in groups of `stages`
/// through one chunk after the other, forward and backward passes alternate after a longer warm-up.
/// [Narayanan et al., SC 2021, 2.2; Megatron-LM]
#include <algorithm>

#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

/// Micro-batches, rounded up to whole groups.
/// Deviation: the paper wants a multiple of `stages`. Here the last group is filled up with
/// micro-batches that are then left out, so that the rest keeps an order in which no stage waits
/// for a later one.
int padded(const ScheduleQuery& query) {
  return (query.micro_batches + query.stages - 1) / query.stages * query.stages;
}

/// All passes of one direction in the order in which every stage runs them.
std::vector<Task> passes(const ScheduleQuery& query, TaskKind kind) {
  std::vector<Task> order;
  for (int first = 0; first < padded(query); first += query.stages) {
    for (int c = 0; c < query.chunks; ++c) {
      const int chunk = kind == TaskKind::forward ? c : query.chunks - 1 - c;
      for (int m = first; m < first + query.stages; ++m) order.push_back({kind, m, chunk});
    }
  }
  return order;
}

std::vector<Task> tasks(const ScheduleQuery& query) {
  const std::vector<Task> forward = passes(query, TaskKind::forward);
  const std::vector<Task> backward = passes(query, TaskKind::backward);
  const int warm_up = std::min(padded(query) * query.chunks, 2 * (query.stages - query.stage - 1) +
                                                                 (query.chunks - 1) * query.stages);
  auto next = forward.begin() + warm_up;
  std::vector<Task> order(forward.begin(), next);
  for (const Task& task : backward) {
    if (next != forward.end()) order.push_back(*next++);
    order.push_back(task);
  }
  std::erase_if(order, [&](const Task& task) { return task.micro_batch >= query.micro_batches; });
  return order;
}

int in_flight(const ScheduleQuery& query) {
  int held = 0;
  int most = 0;
  for (const Task& task : tasks(query)) {
    held += task.kind == TaskKind::forward ? 1 : -1;
    most = std::max(most, held);
  }
  return most;
}

}  // namespace

extern const ScheduleEntry kInterleaved;
const ScheduleEntry kInterleaved = {ir::ScheduleKind::interleaved_one_f_one_b,
                                    "interleaved_1f1b",
                                    "Narayanan et al., SC 2021, 2.2",
                                    "1F1B over several chunks of blocks per stage; smaller bubble",
                                    true,
                                    tasks,
                                    in_flight};

}  // namespace orrery::models
