/// What a replay counts besides wall time: device-hours, dollars, interruptions, points of the
/// curves over time, and the figures of the result. Private to sim/replay.
#pragma once
#include <cstdint>
#include <string>

#include "sim/replay/device_states.h"
#include "sim/replay/ledger.h"
#include "sim/replay/replay.h"

namespace orrery::sim {

class Accounting {
 public:
  /// Keeps references.
  Accounting(const models::Cluster& cluster, const DeviceStates& devices, Instant horizon);

  ReplayLedger& ledger() { return ledger_; }
  ReplayResult& result() { return result_; }

  /// Accounts for devices and dollars up to `now`, with the devices as they are and `in_plan` of
  /// them in the plan; to be called before either changes.
  void advance(Instant now, std::int64_t in_plan);
  /// The price of all live devices, after they or prices have changed.
  void update_price();
  /// Replaces a point at the same instant.
  void add_point(ReplayPoint point);
  /// Takes the plan's rate as the reference if none was faster.
  void consider_reference(const ir::Plan& plan, Seconds iteration_time);
  bool has_reference() const { return result_.reference.value > 0; }

  void interrupt(Instant now, const std::string& cause, const std::string& reason);
  /// While an interruption lasts: another reason for it, and iterations that were lost to it.
  void add_reason(const std::string& reason);
  void add_rolled_back(std::int64_t iterations);
  void end_interruption(Instant now);

  /// The reference holds from here on: ledger entries that need it may be added, then finish().
  void fix_reference() { ledger_.set_reference(to_nanoseconds(result_.reference)); }
  /// Aborts unless wall time and device time add up to the horizon.
  ReplayResult finish(const models::Job& job, bool record_spans);

 private:
  const models::Cluster& cluster_;
  const DeviceStates& devices_;
  ReplayLedger ledger_;
  ReplayResult result_;
  Instant accounted_;  ///< Devices and dollars are accounted for up to here.
  WideCount spare_ = 0, absent_ = 0;
  DollarsPerSecond price_;
  double reference_samples_ = 0;
  bool interrupted_ = false;  ///< The last interruption has not ended.
};

}  // namespace orrery::sim
