/// 1F1B: after a warm-up of stages - stage - 1 forward passes, one forward and one backward pass
/// alternate, so that a stage never holds more than stages - stage micro-batches.
/// [Narayanan et al., PipeDream-Flush, ICML 2021; SC 2021, 2.2]
#include <algorithm>

#include "models/base/ids.h"
#include "models/schedule/closed_form.h"
#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

std::vector<StagePass> one_f_one_b_passes(const ScheduleQuery& query) {
  std::vector<StagePass> order;
  order.reserve(2 * as_size(query.micro_batches));
  const int warm_up = std::min(query.stages - query.stage - 1, query.micro_batches);
  int forward = 0;
  int backward = 0;
  while (forward < warm_up) order.push_back({ir::OpKind::forward, forward++, 0});
  while (forward < query.micro_batches) {
    order.push_back({ir::OpKind::forward, forward++, 0});
    order.push_back({ir::OpKind::backward, backward++, 0});
  }
  while (backward < query.micro_batches) order.push_back({ir::OpKind::backward, backward++, 0});
  return order;
}

int one_f_one_b_in_flight(const ScheduleQuery& query) {
  return std::min(query.micro_batches, query.stages - query.stage);
}

}  // namespace

extern const ScheduleEntry kOneFOneB;
const ScheduleEntry kOneFOneB = {
    .kind = ir::ScheduleKind::one_f_one_b,
    .source = "Narayanan et al., SC 2021",
    .summary = "one forward, one backward; bounded activations",
    .passes = one_f_one_b_passes,
    .in_flight = one_f_one_b_in_flight,
    .pipeline_time = [](std::span<const StageTime> stages, int micro_batches,
                        int) { return pipeline_time(both_passes(stages), micro_batches); },
};

}  // namespace orrery::models
