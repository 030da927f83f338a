/// How long an iteration of a plan takes: what a replay asks of the simulator or of a table.
#pragma once
#include <vector>

#include "models/base/units.h"
#include "models/interfaces/recovery_policy.h"
#include "models/interfaces/transfer_timer.h"

namespace orrery::sim {

/// What slows an iteration down.
struct IterationConditions {
  std::vector<models::SlowDevice> slow{};  ///< Ascending.
  models::DegradedLinks degraded_links{};
  /// Transfers that overlap with training, with the bytes that each moves per second.
  std::vector<models::StateTransfer> background{};
  bool operator==(const IterationConditions&) const = default;
};

class IterationTimer {
 public:
  virtual ~IterationTimer() = default;
  virtual Seconds time(const ir::Plan& plan, const IterationConditions& conditions) const = 0;
};

}  // namespace orrery::sim
