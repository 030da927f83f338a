/// Interleaved 1F1B: each stage holds v chunks of blocks; micro-batches pass in groups of `stages`
/// through one chunk after the other, forward and backward passes alternate after a longer warm-up.
/// [Narayanan et al., SC 2021, 2.2; Megatron-LM]
#include <algorithm>

#include "models/schedule/closed_form.h"
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
std::vector<StagePass> passes_in_order(const ScheduleQuery& query, ir::OpKind kind) {
  std::vector<StagePass> order;
  for (int first = 0; first < padded(query); first += query.stages) {
    for (int c = 0; c < query.chunks; ++c) {
      const int chunk = kind == ir::OpKind::forward ? c : query.chunks - 1 - c;
      for (int m = first; m < first + query.stages; ++m) order.push_back({kind, m, chunk});
    }
  }
  return order;
}

std::vector<StagePass> interleaved_passes(const ScheduleQuery& query) {
  const std::vector<StagePass> forward = passes_in_order(query, ir::OpKind::forward);
  const std::vector<StagePass> backward = passes_in_order(query, ir::OpKind::backward);
  const int warm_up = std::min(padded(query) * query.chunks, 2 * (query.stages - query.stage - 1) +
                                                                 (query.chunks - 1) * query.stages);
  auto next = forward.begin() + warm_up;
  std::vector<StagePass> order(forward.begin(), next);
  for (const StagePass& pass : backward) {
    if (next != forward.end()) order.push_back(*next++);
    order.push_back(pass);
  }
  std::erase_if(order,
                [&](const StagePass& pass) { return pass.micro_batch >= query.micro_batches; });
  return order;
}

/// Where the stages divide m: min(m v, 2 (stages - stage - 1) + (v - 1) stages + 1), the warm-up
/// and one more [Narayanan et al. 2021, 2.2]; on the first stage 1 + (p - 1)/(p v) times what plain
/// 1F1B holds, as [Korthikanti et al. 2022, 4.2.3] say.
int interleaved_in_flight(const ScheduleQuery& query) {
  int held = 0;
  int most = 0;
  for (const StagePass& pass : interleaved_passes(query)) {
    held += pass.kind == ir::OpKind::forward ? 1 : -1;
    most = std::max(most, held);
  }
  return most;
}

/// The fill is divided by the chunks: max t m + (sum of t - max t) / chunks. Exact for equal stages
/// and free communication. [Narayanan et al. 2021, 2.2.2]
Seconds interleaved_time(std::span<const StageTime> stages, int micro_batches, int chunks) {
  Seconds slowest;
  Seconds fill;
  for (const Seconds stage : both_passes(stages)) {
    slowest = std::max(slowest, stage);
    fill += stage;
  }
  return micro_batches * slowest + (fill - slowest) / chunks;
}

}  // namespace

extern const ScheduleEntry kInterleaved;
const ScheduleEntry kInterleaved = {
    .kind = ir::ScheduleKind::interleaved_one_f_one_b,
    .source = "Narayanan et al., SC 2021, 2.2",
    .summary = "1F1B over several chunks of blocks per stage; smaller bubble",
    .uses_chunks = true,
    .passes = interleaved_passes,
    .in_flight = interleaved_in_flight,
    .pipeline_time = interleaved_time,
};

}  // namespace orrery::models
