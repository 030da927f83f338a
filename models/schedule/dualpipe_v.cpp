/// DualPipeV: the blocks lie on the stages as a V, as under ZB-V, and in the steady state each
/// stage runs a forward pass of one chunk and a backward pass of the other in turn, so that the
/// transfers of one hide behind the computation of the other. The backward pass is split only while
/// the pipeline fills and drains. [DeepSeek-AI 2024, DeepSeek-V3 Technical Report, 3.2.1
/// (DualPipe); its public code, "cut in half": DualPipeV]
#include <algorithm>
#include <array>
#include <utility>

#include "models/base/ids.h"
#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

/// The passes of one stage, written down as the public code issues them.
class Order {
 public:
  explicit Order(const ScheduleQuery& query) : micro_batches_(query.micro_batches) {
    const int stages = query.stages;
    const int stage = query.stage;
    const int behind = stages - stage - 1;
    // Deviation: the public code needs two micro-batches for each stage. With fewer the rest are
    // left out of its order.
    const int all = std::max(micro_batches_, 2 * stages);
    for (int i = 0; i < 2 * behind; ++i) forward(0);
    for (int i = 0; i <= stage; ++i) {
      forward(0);
      forward(1);
    }
    for (int i = 0; i < behind; ++i) {
      backward_input(1);
      postponed_weights();
      forward(1);
    }
    for (int i = 0; i <= all - 2 * stages + stage; ++i) {
      forward(0);
      backward(1);
      forward(1);
      backward(0);
    }
    for (int i = 0; i < behind; ++i) {
      backward(1);
      forward(1);
      backward(0);
    }
    // From the middle on weights are postponed.
    for (int i = 0; i < 2 * (stage + 1); ++i) {
      i < stage + 1 ? backward(1 - i % 2) : backward_input(1 - i % 2);
    }
    for (int i = 0; i < behind; ++i) {
      postponed_weights();
      backward_input(0);
    }
    for (int i = 0; i <= stage; ++i) postponed_weights();
  }

  std::vector<StagePass> take() { return std::move(passes_); }

 private:
  void add(const StagePass& pass) {
    if (pass.micro_batch < micro_batches_) passes_.push_back(pass);
  }
  void forward(int chunk) { add({ir::OpKind::forward, forward_[as_size(chunk)]++, chunk}); }
  void backward(int chunk) {
    backward_input(chunk);
    const StagePass weights = postponed_.back();
    postponed_.pop_back();
    add(weights);
  }
  void backward_input(int chunk) {
    const int micro_batch = backward_[as_size(chunk)]++;
    add({ir::OpKind::backward_input, micro_batch, chunk});
    postponed_.push_back({ir::OpKind::backward_weight, micro_batch, chunk});
  }
  void postponed_weights() { add(postponed_[next_++]); }

  int micro_batches_;
  std::vector<StagePass> passes_;
  std::array<int, 2> forward_{};
  std::array<int, 2> backward_{};
  std::vector<StagePass> postponed_;  ///< First come, first served.
  std::size_t next_ = 0;
};

std::vector<StagePass> dualpipe_v_passes(const ScheduleQuery& query) {
  return query.micro_batches == 0 ? std::vector<StagePass>() : Order(query).take();
}

/// 2 p + 1 chunks of half a stage for at least two micro-batches for each stage [public code:
/// PP + 1].
int dualpipe_v_in_flight(const ScheduleQuery& query) {
  return most_between(dualpipe_v_passes(query), ir::OpKind::forward, ir::OpKind::backward_weight);
}

int dualpipe_v_weights_postponed(const ScheduleQuery& query) {
  return most_between(dualpipe_v_passes(query), ir::OpKind::backward_input, ir::OpKind::backward_weight);
}

/// max t m + sum over the other stages of a chunk's (forward + input - weights), weights at most as
/// long as the forward pass. Exact for equal stages whose three passes take equally long, with two
/// micro-batches or more for each.
Seconds dualpipe_v_time(std::span<const StageTime> stages, int micro_batches, int chunks) {
  Seconds slowest;
  Seconds fill;
  Seconds fill_of_slowest;
  for (const StageTime& stage : stages) {
    const Seconds input = stage.backward - stage.weights;
    const Seconds own = stage.forward + input - std::min(stage.forward, stage.weights);
    fill += own;
    if (slowest < stage.forward + stage.backward) {
      slowest = stage.forward + stage.backward;
      fill_of_slowest = own;
    }
  }
  return micro_batches * slowest + (fill - fill_of_slowest) / chunks;
}

}  // namespace

extern const ScheduleEntry kDualPipeV;
const ScheduleEntry kDualPipeV = {
    .kind = ir::ScheduleKind::dualpipe_v,
    .source = "DeepSeek-AI 2024, DeepSeek-V3, 3.2.1; public code, DualPipeV",
    .summary = "two chunks per stage in a V, a forward and a backward pass in turn",
    .uses_chunks = true,
    .folds_back = true,
    .passes = dualpipe_v_passes,
    .in_flight = dualpipe_v_in_flight,
    .weights_postponed = dualpipe_v_weights_postponed,
    .pipeline_time = dualpipe_v_time,
};

}  // namespace orrery::models
