/// ZB-V: each stage holds two chunks of blocks that lie on the model as a V, so that the first
/// stage has both ends: micro-batches go down through the first chunks and back up through the
/// second ones. The backward pass is split, and nothing idles once the pipeline is full, in the
/// memory of 1F1B. [Qi et al., ICLR 2024, 6; Qi et al., NeurIPS 2024, "Pipeline Parallelism with
/// Controllable Memory"]
#include <algorithm>
#include <array>
#include <limits>

#include "models/base/ids.h"
#include "models/schedule/held.h"
#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

constexpr int kChunks = 2;

/// What a stage runs first of what could run. Gradients of weights come when nothing else can.
enum class Rule {
  backward_first,  ///< Backward before forward passes, of each the deeper chunk.
  steady,          ///< As in a steady state, in which a micro-batch starts every six passes.
  steady_later,    ///< The same, turning at the ends of the V one pass later.
};

/// Deviation: the papers lay out the order by hand. Here it is a list schedule of passes that all
/// take one unit, the shortest under three rules. The papers' bubble is reached for as many
/// micro-batches as stages; for more, up to 0.6 of it is added (docs/schedules.md).
class ListSchedule {
 public:
  ListSchedule(int stages, int micro_batches, Rule rule)
      : stages_(stages), micro_batches_(micro_batches), rule_(rule), order_(as_size(stages)) {
    for (auto& of_kind : done_) {
      for (auto& of_chunk : of_kind) of_chunk.assign(as_size(stages), 0);
    }
    for (int left = stages * micro_batches * kChunks * 3; left > 0; ++length_) {
      std::vector<std::pair<int, StagePass>> now;
      for (int s = 0; s < stages; ++s) {
        if (const std::optional<StagePass> pass = next(s)) now.emplace_back(s, *pass);
      }
      for (const auto& [stage, pass] : now) {
        order_[as_size(stage)].push_back(pass);
        ++done(pass.kind, pass.chunk, stage);
        --left;
      }
    }
  }

  int length() const { return length_; }
  std::vector<std::vector<StagePass>> take_order() { return std::move(order_); }

 private:
  enum { kForward, kInput, kWeights };

  int& done(ir::OpKind kind, int chunk, int stage) {
    const int row = kind == ir::OpKind::forward          ? kForward
                    : kind == ir::OpKind::backward_input ? kInput
                                                         : kWeights;
    return done_[as_size(row)][as_size(chunk)][as_size(stage)];
  }

  /// How many micro-batches have come so far that the stage can run them.
  int arrived(ir::OpKind kind, int chunk, int stage) {
    using enum ir::OpKind;
    const int last = stages_ - 1;
    if (kind == backward_weight) return done(backward_input, chunk, stage);
    if (kind == forward) {
      if (chunk == 0) return stage == 0 ? micro_batches_ : done(forward, 0, stage - 1);
      return stage == last ? done(forward, 0, stage) : done(forward, 1, stage + 1);
    }
    if (chunk == 1) return stage == 0 ? done(forward, 1, 0) : done(backward_input, 1, stage - 1);
    return stage == last ? done(backward_input, 1, stage) : done(backward_input, 0, stage + 1);
  }

  std::optional<StagePass> next(int stage) {
    using enum ir::OpKind;
    std::optional<StagePass> best;
    int least = std::numeric_limits<int>::max();
    const auto offer = [&](ir::OpKind kind, int chunk) {
      const int micro_batch = done(kind, chunk, stage);
      if (micro_batch >= arrived(kind, chunk, stage)) return;
      const int rank = rank_of(kind, chunk, micro_batch, stage);
      if (rank >= least) return;
      least = rank;
      best = StagePass{kind, micro_batch, chunk};
    };
    for (const int chunk : {1, 0}) offer(backward_input, chunk);
    offer(forward, 1);
    // As many micro-batches as 1F1B holds on its first stage.
    const int held = done(forward, 0, stage) - done(backward_weight, 0, stage);
    if (held < stages_) offer(forward, 0);
    if (best) return best;
    for (const int chunk : {1, 0}) offer(backward_weight, chunk);
    return best;
  }

  int rank_of(ir::OpKind kind, int chunk, int micro_batch, int stage) const {
    if (kind == ir::OpKind::backward_weight) return 2 * micro_batch + 1 - chunk;
    const bool forward = kind == ir::OpKind::forward;
    if (rule_ == Rule::backward_first) {
      return forward ? 2 * micro_batches_ + 1 - chunk : 2 * micro_batch + 1 - chunk;
    }
    const int turn = rule_ == Rule::steady_later ? 1 : 0;
    const int down = chunk == 0 ? stage : 2 * stages_ - 1 - stage + turn;
    const int up = chunk == 1 ? 2 * stages_ + stage + turn : 4 * stages_ - 1 - stage + 2 * turn;
    return 6 * micro_batch + (forward ? down : up);
  }

  int stages_;
  int micro_batches_;
  Rule rule_;
  int length_ = 0;
  std::array<std::array<std::vector<int>, kChunks>, 3> done_;  ///< Passes by kind, chunk, stage.
  std::vector<std::vector<StagePass>> order_;
};

/// Of all stages; remembered for the next stage that asks.
const std::vector<std::vector<StagePass>>& order_of(int stages, int micro_batches) {
  thread_local std::pair<int, int> known{0, 0};
  thread_local std::vector<std::vector<StagePass>> order;
  if (known == std::pair(stages, micro_batches)) return order;
  int shortest = std::numeric_limits<int>::max();
  for (const Rule rule : {Rule::backward_first, Rule::steady, Rule::steady_later}) {
    ListSchedule schedule(stages, micro_batches, rule);
    if (schedule.length() >= shortest) continue;
    shortest = schedule.length();
    order = schedule.take_order();
  }
  known = {stages, micro_batches};
  return order;
}

std::vector<StagePass> zb_v_passes(const ScheduleQuery& query) {
  if (query.micro_batches == 0) return {};
  return order_of(query.stages, query.micro_batches)[as_size(query.stage)];
}

/// At most 2 p chunks of half a stage [Qi et al. 2024, 6: the memory of 1F1B].
int zb_v_in_flight(const ScheduleQuery& query) {
  return most_between(zb_v_passes(query), ir::OpKind::forward, ir::OpKind::backward_weight);
}

int zb_v_weights_postponed(const ScheduleQuery& query) {
  return most_between(zb_v_passes(query), ir::OpKind::backward_input, ir::OpKind::backward_weight);
}

/// max t m + the forward passes of the first chunks of the stages before the last one, which starts
/// when they have ended. Exact for as many micro-batches as stages that all take equally long for
/// the three passes; a lower bound of our order for more micro-batches.
Seconds zb_v_time(std::span<const StageTime> stages, int micro_batches, int chunks) {
  Seconds slowest;
  Seconds fill;
  for (const StageTime& stage : stages) {
    slowest = std::max(slowest, stage.forward + stage.backward);
    fill += stage.forward / chunks;
  }
  if (!stages.empty()) fill -= stages.back().forward / chunks;
  return micro_batches * slowest + fill;
}

}  // namespace

extern const ScheduleEntry kZbV;
const ScheduleEntry kZbV = {
    .kind = ir::ScheduleKind::zb_v,
    .source = "Qi et al., ICLR 2024, 6; NeurIPS 2024",
    .summary = "two chunks per stage in a V, backward pass split; no bubble but the fill",
    .uses_chunks = true,
    .folds_back = true,
    .passes = zb_v_passes,
    .in_flight = zb_v_in_flight,
    .weights_postponed = zb_v_weights_postponed,
    .pipeline_time = zb_v_time,
};

}  // namespace orrery::models
