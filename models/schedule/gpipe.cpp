/// GPipe: all forward passes, then all backward passes in micro-batch order.
/// [Huang et al., NeurIPS 2019, Fig. 2]
#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

// Deviation: the paper runs backward passes last micro-batch first; every schedule here accumulates
// gradients in micro-batch order, so that results are equal bit by bit. Times do not change.
std::vector<Task> tasks(const ScheduleQuery& query) {
  std::vector<Task> order;
  order.reserve(2 * static_cast<std::size_t>(query.micro_batches));
  for (const TaskKind kind : {TaskKind::forward, TaskKind::backward}) {
    for (int m = 0; m < query.micro_batches; ++m) order.push_back({kind, m, 0});
  }
  return order;
}

int in_flight(const ScheduleQuery& query) { return query.micro_batches; }

}  // namespace

extern const ScheduleEntry kGpipe;
const ScheduleEntry kGpipe = {ir::ScheduleKind::gpipe,
                              "gpipe",
                              "Huang et al., NeurIPS 2019",
                              "all forward passes, then all backward passes",
                              false,
                              tasks,
                              in_flight};

}  // namespace orrery::models
