/// ZB-H1: 1F1B with the backward pass split. The next stage waits for the input's gradient only,
/// and stage i computes the weights' gradients i micro-batches later, when it would idle; no stage
/// holds more micro-batches than the first one under 1F1B. [Qi et al., ICLR 2024, 2 and 3]
#include <algorithm>

#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

std::vector<Task> tasks(const ScheduleQuery& query) {
  std::vector<Task> order;
  order.reserve(3 * static_cast<std::size_t>(query.micro_batches));
  const int warm_up = std::min(query.stages - query.stage - 1, query.micro_batches);
  int forward = 0;
  int weights = 0;
  while (forward < warm_up) order.push_back({TaskKind::forward, forward++, 0});
  for (int backward = 0; backward < query.micro_batches; ++backward) {
    if (forward < query.micro_batches) order.push_back({TaskKind::forward, forward++, 0});
    order.push_back({TaskKind::backward_input, backward, 0});
    if (backward >= query.stage) order.push_back({TaskKind::backward_weight, weights++, 0});
  }
  while (weights < query.micro_batches) order.push_back({TaskKind::backward_weight, weights++, 0});
  return order;
}

/// A micro-batch is held until its weights' gradients are computed.
int in_flight(const ScheduleQuery& query) { return std::min(query.micro_batches, query.stages); }

}  // namespace

extern const ScheduleEntry kZeroBubble;
const ScheduleEntry kZeroBubble = {
    ir::ScheduleKind::zero_bubble,
    "zero_bubble",
    "Qi et al., ICLR 2024, schedule ZB-H1",
    "1F1B with weight gradients postponed into the bubble; activations as on the first stage",
    false,
    tasks,
    in_flight};

}  // namespace orrery::models
