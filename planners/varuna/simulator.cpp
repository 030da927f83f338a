#include "planners/varuna/simulator.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <tuple>

#include "models/base/check.h"

namespace orrery::planners {
namespace {

enum class VarunaEvent { forward_done, may_recompute, recompute_done, backward_done, sent };

struct TimedEvent {
  double time;
  long sequence;  // Of creation.
  VarunaEvent kind;
  std::size_t stage;
  int micro_batch;
  bool gradient = false;  // What was sent.
};
struct LaterEvent {
  bool operator()(const TimedEvent& a, const TimedEvent& b) const {
    return std::tie(a.time, a.sequence) > std::tie(b.time, b.sequence);
  }
};

struct SimulatedStage {
  std::deque<int> forward;
  std::deque<int> recompute;
  std::deque<int> backward;
  std::deque<int> activations_out;
  std::deque<int> gradients_out;
  int recomputed = -1;  // The micro-batch whose activations are there again.
  bool busy = false;
  bool sending = false;
};

class VarunaSimulation {
 public:
  VarunaSimulation(const VarunaPipeline& pipeline, int micro_batches)
      : pipeline_(pipeline), stages_(pipeline.forward.size()) {
    for (int m = 0; m < micro_batches; ++m) stages_.front().forward.push_back(m);
  }

  Seconds run() {
    serve(0, 0);
    while (!events_.empty()) {
      const TimedEvent event = events_.top();
      events_.pop();
      handle(event);
    }
    return Seconds{end_};
  }

 private:
  bool last(std::size_t s) const { return s + 1 == stages_.size(); }

  void add(double time, VarunaEvent kind, std::size_t stage, int micro_batch,
           bool gradient = false) {
    events_.push({time, sequence_++, kind, stage, micro_batch, gradient});
  }

  static int take(std::deque<int>& queue) {
    const int front = queue.front();
    queue.pop_front();
    return front;
  }

  void compute(double now, std::size_t s) {
    SimulatedStage& stage = stages_[s];
    if (stage.busy) return;
    const bool kept = last(s) || !pipeline_.recomputes;
    if (!stage.backward.empty() && (kept || stage.backward.front() == stage.recomputed)) {
      const int m = take(stage.backward);
      const double time = pipeline_.backward[s].value;
      add(now + time, VarunaEvent::backward_done, s, m);
      if (s > 0 && pipeline_.recomputes) add(now + time / 2, VarunaEvent::may_recompute, s - 1, m);
    } else if (stage.recomputed < 0 && !stage.recompute.empty()) {
      add(now + pipeline_.recompute[s].value, VarunaEvent::recompute_done, s,
          take(stage.recompute));
    } else if (stage.recomputed < 0 && !stage.forward.empty()) {
      add(now + pipeline_.forward[s].value, VarunaEvent::forward_done, s, take(stage.forward));
    } else {
      return;
    }
    stage.busy = true;
  }

  void send(double now, std::size_t s) {
    SimulatedStage& stage = stages_[s];
    if (stage.sending) return;
    if (!stage.activations_out.empty()) {
      add(now + pipeline_.send[s].value, VarunaEvent::sent, s, take(stage.activations_out));
    } else if (!stage.gradients_out.empty()) {
      add(now + pipeline_.send[s - 1].value, VarunaEvent::sent, s, take(stage.gradients_out), true);
    } else {
      return;
    }
    stage.sending = true;
  }

  void serve(double now, std::size_t s) {
    compute(now, s);
    send(now, s);
  }

  void handle(const TimedEvent& event) {
    const std::size_t s = event.stage;
    SimulatedStage& stage = stages_[s];
    switch (event.kind) {
      case VarunaEvent::forward_done:
        stage.busy = false;
        (last(s) ? stage.backward : stage.activations_out).push_back(event.micro_batch);
        break;
      case VarunaEvent::may_recompute:
        stage.recompute.push_back(event.micro_batch);
        break;
      case VarunaEvent::recompute_done:
        stage.busy = false;
        stage.recomputed = event.micro_batch;
        break;
      case VarunaEvent::backward_done:
        stage.busy = false;
        stage.recomputed = -1;
        if (s > 0) stage.gradients_out.push_back(event.micro_batch);
        end_ = std::max(end_, event.time);
        break;
      case VarunaEvent::sent: {
        stage.sending = false;
        const std::size_t to = event.gradient ? s - 1 : s + 1;
        (event.gradient ? stages_[to].backward : stages_[to].forward).push_back(event.micro_batch);
        serve(event.time, to);
        break;
      }
    }
    serve(event.time, s);
  }

  const VarunaPipeline& pipeline_;
  std::vector<SimulatedStage> stages_;
  std::priority_queue<TimedEvent, std::vector<TimedEvent>, LaterEvent> events_;
  long sequence_ = 0;
  double end_ = 0;
};

}  // namespace

Seconds simulate_varuna(const VarunaPipeline& pipeline, int micro_batches) {
  const std::size_t stages = pipeline.forward.size();
  ORRERY_CHECK(stages > 0 && pipeline.recompute.size() == stages &&
                   pipeline.backward.size() == stages && pipeline.send.size() + 1 == stages,
               "times of {} stages", stages);
  return VarunaSimulation(pipeline, micro_batches).run();
}

}  // namespace orrery::planners
