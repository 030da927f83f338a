/// ZB-H1: 1F1B with the backward pass split. The next stage waits for the input's gradient only,
/// and stage i computes the weights' gradients i micro-batches later, when it would idle; no stage
/// holds more micro-batches than the first one under 1F1B. [Qi et al., ICLR 2024, 2 and 3]
#include <algorithm>

#include "models/base/ids.h"
#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

std::vector<StagePass> zero_bubble_passes(const ScheduleQuery& query) {
  std::vector<StagePass> order;
  order.reserve(3 * as_size(query.micro_batches));
  const int warm_up = std::min(query.stages - query.stage - 1, query.micro_batches);
  int forward = 0;
  int weights = 0;
  while (forward < warm_up) order.push_back({ir::OpKind::forward, forward++, 0});
  for (int backward = 0; backward < query.micro_batches; ++backward) {
    if (forward < query.micro_batches) order.push_back({ir::OpKind::forward, forward++, 0});
    order.push_back({ir::OpKind::backward_input, backward, 0});
    if (backward >= query.stage) order.push_back({ir::OpKind::backward_weight, weights++, 0});
  }
  while (weights < query.micro_batches)
    order.push_back({ir::OpKind::backward_weight, weights++, 0});
  return order;
}

/// Held until the weights' gradients are computed: on all stages what 1F1B holds on the first
/// [Qi et al. 2024, 3].
int zero_bubble_in_flight(const ScheduleQuery& query) {
  return std::min(query.micro_batches, query.stages);
}

int weights_postponed(const ScheduleQuery& query) {
  return std::min(query.micro_batches, query.stage + 1);
}

/// max t m + sum over the other stages of (forward + input - weights), where weights count at most
/// as much as the forward pass. Exact for equal stages with weights <= forward.
/// [Qi et al. 2024, Table 2: bubble (p - 1)(T_F + T_B - T_W)]
Seconds zero_bubble_time(std::span<const StageTime> stages, int micro_batches, int /*chunks*/) {
  Seconds fill;
  Seconds slowest;
  Seconds fill_of_slowest;
  for (const StageTime& stage : stages) {
    const Seconds input = stage.backward - stage.weights;
    const Seconds own = stage.forward + input - std::min(stage.forward, stage.weights);
    const Seconds whole = stage.forward + input + stage.weights;
    fill += own;
    if (slowest < whole) {
      slowest = whole;
      fill_of_slowest = own;
    }
  }
  return micro_batches * slowest + fill - fill_of_slowest;
}

}  // namespace

extern const ScheduleEntry kZeroBubble;
const ScheduleEntry kZeroBubble = {
    .kind = ir::ScheduleKind::zero_bubble,
    .source = "Qi et al., ICLR 2024, schedule ZB-H1",
    .summary =
        "1F1B with weight gradients postponed into the bubble; activations as on the first stage",
    .passes = zero_bubble_passes,
    .in_flight = zero_bubble_in_flight,
    .weights_postponed = weights_postponed,
    .pipeline_time = zero_bubble_time,
};

}  // namespace orrery::models
