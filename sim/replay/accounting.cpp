#include "sim/replay/accounting.h"

#include <utility>

#include "models/base/check.h"
#include "models/base/ids.h"

namespace orrery::sim {

Accounting::Accounting(const models::Cluster& cluster, const DeviceStates& devices, Instant horizon)
    : cluster_(cluster), devices_(devices) {
  result_.horizon = horizon - Instant{};
  result_.priced = true;
}

void Accounting::advance(Instant now, std::int64_t in_plan) {
  const Nanoseconds passed = now - accounted_;
  const std::int64_t live = devices_.live_count();
  spare_ += WideCount{live - in_plan} * passed.count;
  absent_ += WideCount{cluster_.size() - live} * passed.count;
  result_.dollars += price_ * to_seconds(passed);
  accounted_ = now;
}

void Accounting::update_price() { price_ = devices_.price(result_.priced); }

void Accounting::add_point(ReplayPoint point) {
  point.live = static_cast<int>(devices_.live_count());
  if (!result_.points.empty() && result_.points.back().at == point.at) result_.points.pop_back();
  result_.points.push_back(point);
}

void Accounting::consider_reference(const ir::Plan& plan, Seconds iteration_time) {
  const auto samples = static_cast<double>(ir::global_batch(plan));
  if (has_reference() &&
      samples / iteration_time.value <= reference_samples_ / result_.reference.value) {
    return;
  }
  result_.reference = iteration_time;
  reference_samples_ = samples;
}

void Accounting::interrupt(Instant now, const std::string& cause, const std::string& reason) {
  result_.log.push_back({now, cause, reason, 0, {}});
  ++result_.interruptions;
  interrupted_ = true;
}

void Accounting::add_reason(const std::string& reason) {
  if (!interrupted_) return;
  std::string& reasons = result_.log.back().reason;
  if (reasons.find(reason) == std::string::npos) reasons += "; " + reason;
}

void Accounting::add_rolled_back(std::int64_t iterations) {
  if (interrupted_) result_.log.back().rolled_back += iterations;
}

void Accounting::end_interruption(Instant now) {
  if (interrupted_) result_.log.back().stall = now - result_.log.back().at;
  interrupted_ = false;
}

ReplayResult Accounting::finish(const models::Job& job, bool record_spans) {
  ledger_.fill(result_, record_spans);
  result_.tokens = result_.samples * job.sequence_length;

  constexpr double kNanosecondsPerHour = 3.6e12;
  const auto in_plan = ledger_.in_plan();
  WideCount sum = spare_ + absent_;
  for (std::size_t b = 0; b < kBuckets; ++b) {
    sum += in_plan[b];
    result_.device_hours.in_plan[b] = static_cast<double>(in_plan[b]) / kNanosecondsPerHour;
  }
  ORRERY_CHECK(sum == WideCount{cluster_.size()} * result_.horizon.count,
               "device-time of {} devices over {} ns does not add up", cluster_.size(),
               result_.horizon.count);
  result_.device_hours.spare = static_cast<double>(spare_) / kNanosecondsPerHour;
  result_.device_hours.absent = static_cast<double>(absent_) / kNanosecondsPerHour;
  const auto wall = [&](Bucket bucket) {
    return static_cast<double>(result_.wall[index_of(bucket)].count);
  };
  const auto horizon = static_cast<double>(result_.horizon.count);
  result_.ettr = (wall(Bucket::productive) + wall(Bucket::degraded)) / horizon;
  if (has_reference()) {
    const double ideal =
        reference_samples_ * horizon / static_cast<double>(to_nanoseconds(result_.reference).count);
    result_.goodput = static_cast<double>(result_.samples) / ideal;
  }
  return std::move(result_);
}

}  // namespace orrery::sim
