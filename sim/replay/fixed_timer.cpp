#include "sim/replay/fixed_timer.h"

#include <algorithm>
#include <iterator>

#include "models/base/check.h"

namespace orrery::sim {

FixedIterationTimer::FixedIterationTimer(Seconds time) : time_(time) {}

FixedIterationTimer::FixedIterationTimer(std::map<int, double> samples_per_second)
    : samples_per_second_(std::move(samples_per_second)) {}

Seconds FixedIterationTimer::time(const ir::Plan& plan,
                                  const IterationConditions& conditions) const {
  const std::vector<DeviceId> devices = ir::working_devices(plan);
  Seconds time = time_;
  if (!samples_per_second_.empty()) {
    const auto above = samples_per_second_.upper_bound(static_cast<int>(devices.size()));
    ORRERY_CHECK(above != samples_per_second_.begin(), "no throughput for {} devices",
                 devices.size());
    time = Seconds{static_cast<double>(ir::global_batch(plan)) / std::prev(above)->second};
  }
  double slowest = 1;
  for (const models::SlowDevice& device : conditions.slow) {
    if (!std::binary_search(devices.begin(), devices.end(), device.device)) continue;
    slowest = std::min(slowest, device.factor);
  }
  return time / slowest;
}

Nanoseconds FixedTransferTimer::time(const std::vector<models::StateTransfer>& transfers,
                                     const models::DegradedLinks&) const {
  if (transfers.empty()) return {};
  if (bandwidth_.value == 0) return time_;
  std::map<DeviceId, Bytes> load;
  for (const models::StateTransfer& transfer : transfers) {
    load[transfer.destination.valid() ? transfer.destination : transfer.source] += transfer.bytes;
  }
  Bytes most;
  for (const auto& [device, bytes] : load) most = std::max(most, bytes);
  return to_nanoseconds(most / bandwidth_);
}

}  // namespace orrery::sim
