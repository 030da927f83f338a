/// GPipe: all forward passes, then all backward passes in micro-batch order.
/// [Huang et al., NeurIPS 2019, Fig. 2]
#include "models/base/ids.h"
#include "models/schedule/closed_form.h"
#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

// Deviation: the paper runs backward passes last micro-batch first; every schedule here accumulates
// gradients in micro-batch order, so that results are equal bit by bit. Times do not change.
std::vector<StagePass> gpipe_passes(const ScheduleQuery& query) {
  std::vector<StagePass> order;
  order.reserve(2 * as_size(query.micro_batches));
  for (const ir::OpKind kind : {ir::OpKind::forward, ir::OpKind::backward}) {
    for (int m = 0; m < query.micro_batches; ++m) order.push_back({kind, m, 0});
  }
  return order;
}

/// Two flow shops of equal jobs, one after the other, which is exact for free communication:
/// sum(f + b) + (m - 1)(max f + max b). [Huang et al. 2019, 2.3]
Seconds gpipe_time(std::span<const StageTime> stages, int micro_batches, int /*chunks*/) {
  std::vector<Seconds> forward, backward;
  for (const StageTime& stage : stages) {
    forward.push_back(stage.forward);
    backward.push_back(stage.backward);
  }
  return pipeline_time(forward, micro_batches) + pipeline_time(backward, micro_batches);
}

}  // namespace

extern const ScheduleEntry kGpipe;
const ScheduleEntry kGpipe = {
    .kind = ir::ScheduleKind::gpipe,
    .source = "Huang et al., NeurIPS 2019",
    .summary = "all forward passes, then all backward passes",
    .passes = gpipe_passes,
    .in_flight = [](const ScheduleQuery& query) { return query.micro_batches; },
    .pipeline_time = gpipe_time,
};

}  // namespace orrery::models
