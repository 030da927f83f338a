// What a replay counts beside wall time: device-hours, dollars, points, and the figures of the
// result.
#include <cstddef>

#include "models/base/check.h"
#include "sim/replay/engine.h"

namespace orrery::sim {

std::int64_t ReplayEngine::in_plan() const {
  if (run_) return static_cast<std::int64_t>(run_->devices().working->size());
  if (recovery_) return static_cast<std::int64_t>(recovery_->devices().working->size());
  return 0;
}

void ReplayEngine::account() {
  const Nanoseconds passed = now_ - accounted_;
  const std::int64_t live = devices_.live_count();
  spare_ += WideCount{live - in_plan()} * passed.count;
  absent_ += WideCount{input_.cluster.size() - live} * passed.count;
  result_.dollars += rate_ * to_seconds(passed);
  accounted_ = now_;
}

void ReplayEngine::add_point() {
  ReplayPoint point;
  point.at = now_;
  point.iterations = run_ ? run_->done() : done_;
  point.live = static_cast<int>(devices_.live_count());
  point.in_plan = static_cast<int>(in_plan());
  if (run_) {
    const auto samples = static_cast<double>(ir::global_batch(*run_->plan()));
    point.samples_per_second = samples / to_seconds(run_->iteration()).value;
  }
  if (!result_.points.empty() && result_.points.back().at == now_) result_.points.pop_back();
  result_.points.push_back(point);
}

/// Takes the plan's rate as the reference if none was faster.
void ReplayEngine::refer_to(const ir::Plan& plan, Seconds time) {
  const auto samples = static_cast<double>(ir::global_batch(plan));
  const bool first = result_.reference.value == 0;
  if (!first && samples / time.value <= reference_samples_ / result_.reference.value) return;
  result_.reference = time;
  reference_samples_ = samples;
}

void ReplayEngine::finish() {
  account();
  add_point();
  ledger_.set_reference(to_nanoseconds(result_.reference));
  if (run_) {
    run_->finish();
  } else if (recovery_) {
    recovery_->stop();
  } else {
    ledger_.book(Bucket::idle, idle_since_, now_, 0, idle_reason_);
  }
  if (log_open_) result_.log.back().stall = now_ - result_.log.back().at;
  ledger_.fill(result_, options_.record_spans);
  result_.tokens = result_.samples * input_.job.sequence_length;

  constexpr double kHour = 3.6e12;
  const auto in_plan = ledger_.in_plan();
  WideCount sum = spare_ + absent_;
  for (std::size_t b = 0; b < kBuckets; ++b) {
    sum += in_plan[b];
    result_.device_hours.in_plan[b] = static_cast<double>(in_plan[b]) / kHour;
  }
  ORRERY_CHECK(sum == WideCount{input_.cluster.size()} * horizon_.nanoseconds,
               "device-time of {} devices over {} ns does not add up", input_.cluster.size(),
               horizon_.nanoseconds);
  result_.device_hours.spare = static_cast<double>(spare_) / kHour;
  result_.device_hours.absent = static_cast<double>(absent_) / kHour;
  const auto wall = [&](Bucket bucket) {
    return static_cast<double>(result_.wall[static_cast<std::size_t>(bucket)].count);
  };
  const auto horizon = static_cast<double>(horizon_.nanoseconds);
  result_.ettr = (wall(Bucket::productive) + wall(Bucket::degraded)) / horizon;
  if (result_.reference.value > 0) {
    const double ideal =
        reference_samples_ * horizon / static_cast<double>(to_nanoseconds(result_.reference).count);
    result_.goodput = static_cast<double>(result_.samples) / ideal;
  }
}

}  // namespace orrery::sim
