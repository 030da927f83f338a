/// Times without a simulation: for closed forms, published throughput tables and tests.
#pragma once
#include <map>
#include <vector>

#include "models/base/units.h"
#include "models/interfaces/transfer_timer.h"
#include "sim/replay/iteration_timer.h"

namespace orrery::sim {

/// Iterations take a constant time, or what a table says for the number of working devices. The
/// slowest device of the plan sets the pace: time / its factor. Links and background transfers do
/// not matter.
class FixedIterationTimer final : public IterationTimer {
 public:
  explicit FixedIterationTimer(Seconds time);
  /// Samples per second by number of working devices; a plan with a number that is not in the table
  /// runs as the next smaller one does. Aborts where there is none.
  explicit FixedIterationTimer(std::map<int, double> samples_per_second);
  Seconds time(const ir::Plan& plan, const IterationConditions& conditions) const override;

 private:
  Seconds time_;
  std::map<int, double> samples_per_second_;
};

/// Any set of transfers takes a constant time, or the most bytes that one destination receives (for
/// writes to the cloud: that one source sends) over a bandwidth.
class FixedTransferTimer final : public models::TransferTimer {
 public:
  explicit FixedTransferTimer(Nanoseconds time) : time_(time) {}
  explicit FixedTransferTimer(BytesPerSecond bandwidth) : bandwidth_(bandwidth) {}
  /// Degraded links do not matter.
  Nanoseconds time(const std::vector<models::StateTransfer>& transfers,
                   const models::DegradedLinks& degraded_links = {}) const override;

 private:
  Nanoseconds time_;
  BytesPerSecond bandwidth_;
};

}  // namespace orrery::sim
