/// A recovery in progress: the phases of a decision, one after another. Private to sim/replay.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "models/interfaces/recovery_policy.h"
#include "sim/replay/device_states.h"
#include "sim/replay/ledger.h"
#include "sim/replay/replica_store.h"

namespace orrery::sim {

class RecoveryRun {
 public:
  /// Keeps references. Transfers are timed when their phase is reached, on the links as they are
  /// then.
  RecoveryRun(models::RecoveryDecision decision, Instant now,
              const models::TransferTimer& transfers, const DeviceStates& states,
              ReplayLedger& ledger);

  /// Runs to `until`; true when the last phase has ended, at now().
  bool advance(Instant until);
  /// Stops here: the time that the phase took so far counts, what it was doing is lost.
  void stop();

  Instant now() const { return now_; }
  Instant phase_end() const { return end_; }
  const models::PlanPointer& plan() const { return decision_.plan; }
  const PlanDevices& devices() const { return devices_; }
  /// All state is where the plan needs it.
  bool moved() const { return moved_; }
  /// The device is in the plan, or holds what is still to be moved.
  bool needs(DeviceId device) const;

 private:
  Nanoseconds duration_of(const models::RecoveryPhase& phase) const;
  std::string label() const;

  const models::TransferTimer& transfers_;
  const DeviceStates& states_;
  ReplayLedger& ledger_;
  models::RecoveryDecision decision_;
  PlanDevices devices_;
  std::size_t phase_ = 0;
  Instant start_, end_;  ///< Of the phase.
  Instant now_;
  bool moved_ = false;
};

/// Where the time of a phase goes.
Bucket bucket_of(models::RecoveryPhase::Kind kind);

}  // namespace orrery::sim
