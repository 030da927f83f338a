/// DualPipe: micro-batches are fed from both ends. Each device holds two stages' blocks, its own
/// for those that come down the pipeline and its mirror image's for those that come up, so that
/// every block is there twice. [DeepSeek-V3 2024, 3.2.1, Fig. 5 and Table 2; order of passes:
/// DeepSeek's DualPipe, which needs an even number of stages and at least twice as many
/// micro-batches]
#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "models/schedule/held.h"
#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

/// The order of one stage. `near` micro-batches enter at the end of the pipeline that is nearer to
/// the stage, `far` ones at the other.
/// Deviation: every backward pass is split, so that the gradients of the input leave before those
/// of the weights; and where the original runs a forward and a backward pass as one to overlap what
/// they wait for, the two follow each other here.
class Order {
 public:
  Order(int stages, int stage, int micro_batches) : near_(2 * stage < stages ? 0 : 1) {
    const int half = stages / 2;
    const int depth = std::min(stage, stages - 1 - stage);  // From the nearer end.
    const int inner = half - depth - 1;
    const int far = 1 - near_;
    repeat(2 * inner, [&] { forward(near_); });
    repeat(depth + 1, [&] { forward(near_), forward(far); });
    repeat(inner, [&] { input(far), weights(), forward(far); });
    repeat(micro_batches / 2 - stages + depth + 1,
           [&] { forward(near_), backward(far), forward(far), backward(near_); });
    repeat(inner, [&] { backward(far), forward(far), backward(near_); });
    for (int i = 0; i < 2 * (depth + 1); ++i) {
      const int chunk = i % 2 == 0 ? far : near_;
      if (i > depth) {  // The weights' gradients fill the bubble of the end.
        input(chunk);
      } else {
        backward(chunk);
      }
    }
    repeat(inner, [&] { weights(), input(near_); });
    repeat(depth + 1, [&] { weights(); });
  }

  std::vector<StagePass> take() { return std::move(passes_); }

 private:
  template <class F>
  static void repeat(int times, F&& step) {
    for (int i = 0; i < times; ++i) step();
  }
  void forward(int chunk) {
    passes_.push_back({ir::OpKind::forward, 2 * forwards_[chunk]++ + chunk, chunk});
  }
  void input(int chunk) {
    passes_.push_back({ir::OpKind::backward_input, 2 * backwards_[chunk]++ + chunk, chunk});
    postponed_.push_back(passes_.back());
  }
  void weights() {
    StagePass pass = postponed_.front();
    postponed_.pop_front();
    pass.kind = ir::OpKind::backward_weight;
    passes_.push_back(pass);
  }
  void backward(int chunk) {
    input(chunk);
    StagePass pass = postponed_.back();
    postponed_.pop_back();
    pass.kind = ir::OpKind::backward_weight;
    passes_.push_back(pass);
  }

  int near_;
  std::array<int, 2> forwards_{};
  std::array<int, 2> backwards_{};
  std::deque<StagePass> postponed_;
  std::vector<StagePass> passes_;
};

/// Where DualPipe has no order (validate() refuses such plans) one micro-batch follows the other.
std::vector<StagePass> dual_pipe_passes(const ScheduleQuery& query) {
  const int stages = query.stages;
  const int micro_batches = query.micro_batches;
  if (stages % 2 == 0 && micro_batches % 2 == 0 && micro_batches >= 2 * stages) {
    return Order(stages, query.stage, micro_batches).take();
  }
  std::vector<StagePass> passes;
  for (int m = 0; m < micro_batches; ++m) {
    for (const ir::OpKind kind :
         {ir::OpKind::forward, ir::OpKind::backward_input, ir::OpKind::backward_weight}) {
      passes.push_back({kind, m, m % 2});
    }
  }
  return passes;
}

/// p + 1 on every stage [DeepSeek-V3, Table 2].
int dual_pipe_in_flight(const ScheduleQuery& query) {
  return most_between(dual_pipe_passes(query), ir::OpKind::forward, ir::OpKind::backward_weight);
}

int dual_pipe_weights_postponed(const ScheduleQuery& query) {
  return most_between(dual_pipe_passes(query), ir::OpKind::backward_input,
                      ir::OpKind::backward_weight);
}

/// max t m + (p / 2 - 1) (F + B - 2 W) of the slowest stage, where a micro-batch passes one chunk
/// of two: half the paper's bubble, (p / 2 - 1) (F&B + B - 3 W), for passes that all take equally
/// long, since what a pass makes does not wait here for the end of a pair. Exact for such passes of
/// equal stages.
Seconds dual_pipe_time(std::span<const StageTime> stages, int micro_batches, int chunks) {
  const int inner = std::max(0, static_cast<int>(stages.size()) / 2 - 1);
  Seconds slowest;
  Seconds idle;
  for (const StageTime& stage : stages) {
    slowest = std::max(slowest, (stage.forward + stage.backward) / chunks);
    idle = std::max(idle, (stage.forward + stage.backward - 2 * stage.weights) / chunks);
  }
  return micro_batches * slowest + inner * idle;
}

}  // namespace

extern const ScheduleEntry kDualPipe;
const ScheduleEntry kDualPipe = {
    .kind = ir::ScheduleKind::dual_pipe,
    .source = "DeepSeek-V3 2024, 3.2.1",
    .summary = "micro-batches from both ends, every block twice, backward pass split",
    .uses_chunks = true,
    .folds_back = true,
    .both_ways = true,
    .passes = dual_pipe_passes,
    .in_flight = dual_pipe_in_flight,
    .weights_postponed = dual_pipe_weights_postponed,
    .pipeline_time = dual_pipe_time,
};

}  // namespace orrery::models
