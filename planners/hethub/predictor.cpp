#include "planners/hethub/predictor.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

/// Passes of one direction on their way to the stages.
class Arrivals {
 public:
  /// A stage never has more than `stages` passes that have arrived and are not computed yet.
  explicit Arrivals(std::size_t stages)
      : window_(stages + 1), times_(stages * window_), count_(stages), link_free_(stages) {}

  void send(std::size_t to, Seconds ready, Seconds hop) {
    link_free_[to] = std::max(ready, link_free_[to]) + hop;
    slot(to, count_[to]++) = link_free_[to];
  }
  bool there(std::size_t stage, int pass) const { return pass < count_[stage]; }
  Seconds& slot(std::size_t stage, int pass) {
    return times_[stage * window_ + as_size(pass) % window_];
  }

 private:
  std::size_t window_;
  std::vector<Seconds> times_;
  std::vector<int> count_;
  std::vector<Seconds> link_free_;
};

class OneFOneB {
 public:
  OneFOneB(std::span<const PredictedStage> stages, int micro_batches)
      : stages_(stages),
        micro_batches_(micro_batches),
        forward_(stages.size()),
        backward_(stages.size()),
        next_(stages.size()),
        clock_(stages.size()) {}

  Seconds run() {
    const std::size_t count = stages_.size();
    // Down with the forward passes, up with the backward ones: a round moves every stage by at
    // least one micro-batch once the pipeline is full.
    while (next_.front() < 2 * std::int64_t{micro_batches_}) {
      for (std::size_t s = 0; s < count; ++s) advance(s);
      for (std::size_t s = count; s-- > 0;) advance(s);
    }
    Seconds end;
    for (std::size_t s = 0; s < count; ++s) end = std::max(end, clock_[s] + stages_[s].update);
    return end;
  }

 private:
  /// All passes of a stage whose inputs are there.
  void advance(std::size_t s) {
    const std::int64_t m = micro_batches_;
    const std::int64_t ahead = std::min<std::int64_t>(
        m, static_cast<std::int64_t>(stages_.size()) - 1 - static_cast<std::int64_t>(s));
    for (; next_[s] < 2 * m; ++next_[s]) {
      const std::int64_t op = next_[s];
      const bool steady = op >= ahead && op < 2 * m - ahead;
      const bool forward = op < ahead || (steady && (op - ahead) % 2 == 0);
      std::int64_t pass = op;  // Of the micro-batch, while warming up.
      if (steady) pass = (op - ahead) / 2 + (forward ? ahead : 0);
      if (op >= 2 * m - ahead) pass = op - m;
      if (!(forward ? forward_pass(s, static_cast<int>(pass))
                    : backward_pass(s, static_cast<int>(pass)))) {
        return;
      }
    }
  }

  bool forward_pass(std::size_t s, int pass) {
    if (s > 0) {
      if (!forward_.there(s, pass)) return false;
      clock_[s] = std::max(clock_[s], forward_.slot(s, pass));
    }
    clock_[s] += stages_[s].forward;
    if (s + 1 < stages_.size()) forward_.send(s + 1, clock_[s], stages_[s].forward_hop);
    return true;
  }

  bool backward_pass(std::size_t s, int pass) {
    if (s + 1 < stages_.size()) {
      if (!backward_.there(s, pass)) return false;
      clock_[s] = std::max(clock_[s], backward_.slot(s, pass));
    }
    clock_[s] += stages_[s].backward;
    if (s > 0) backward_.send(s - 1, clock_[s], stages_[s - 1].backward_hop);
    return true;
  }

  std::span<const PredictedStage> stages_;
  int micro_batches_;
  Arrivals forward_;
  Arrivals backward_;
  std::vector<std::int64_t> next_;  // Pass in the stage's own order.
  std::vector<Seconds> clock_;      // End of its last pass.
};

}  // namespace

Seconds predict_iteration(std::span<const PredictedStage> stages, int micro_batches) {
  ORRERY_CHECK(!stages.empty() && micro_batches >= 1, "{} stages, {} micro-batches", stages.size(),
               micro_batches);
  return OneFOneB(stages, micro_batches).run();
}

Seconds predict_at_least(std::span<const PredictedStage> stages, int micro_batches) {
  Seconds there;
  Seconds back;
  Seconds bound;
  for (const PredictedStage& stage : stages) {
    const Seconds busy = there + micro_batches * (stage.forward + stage.backward);
    bound = std::max({bound, busy + stage.update, busy + back + stages.front().update});
    there += stage.forward + stage.forward_hop;
    back += stage.backward + stage.backward_hop;
  }
  return bound;
}

}  // namespace orrery::planners
