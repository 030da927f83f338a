/// The replay itself: from event to event. Private to sim/replay.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/replay/copy_store.h"
#include "sim/replay/device_states.h"
#include "sim/replay/ledger.h"
#include "sim/replay/recovery_run.h"
#include "sim/replay/replay.h"
#include "sim/replay/training_run.h"

namespace orrery::sim {

/// At any instant the job trains (run_), recovers (recovery_), or waits.
class ReplayEngine {
 public:
  ReplayEngine(const ReplayInput& input, const ReplayOptions& options);
  ReplayResult run(const std::function<void(Instant)>& on_progress);

 private:
  using Events = std::span<const ir::ClusterEvent>;
  /// A switch that training runs on to.
  struct Planned {
    models::RecoveryDecision decision;
    Instant at;
    std::string cause;
    Instant asked;  ///< Of the first of the switches that took each other's place.
  };

  std::size_t batch_size(Events events) const;
  void start(Events initial);
  void advance_to(Instant until);
  void batch(Events events);
  void finish();
  void prefetch_after(Events coming) const;
  models::PlanPointer next_plan(Instant at) const;
  void prefetch(const ir::Plan& plan, const DeviceStates& devices) const;

  /// Applies the events; true if the plan cannot go on as it is.
  bool apply(Events events);
  bool hits(const DeviceStates::Change& change) const;
  static void lose(const DeviceStates::Change& change, CopyStore& copies);
  models::JobState state() const;
  models::RecoveryDecision ask(Events events);
  void obey(models::RecoveryDecision decision, bool broken, const std::string& cause);
  void check(const models::RecoveryDecision& decision, bool broken) const;
  bool feasible(const models::RecoveryDecision& decision) const;

  void proceed();
  void stop(const std::string& cause, const std::string& reason);
  void recover(models::RecoveryDecision decision, const std::string& cause);
  void train(models::PlanPointer plan, const PlanDevices& devices);
  void refer_to(const ir::Plan& plan, Seconds time);
  void settle_recovery(bool finished);
  void tell_of_latecomers();
  Seconds time_of(const ir::Plan& plan, const std::vector<DeviceId>& devices) const;
  CopyLoad take_load(const models::PlanPointer& plan, const std::vector<DeviceId>& devices,
                     Seconds time, std::vector<models::CheckpointLevel>& levels) const;

  /// Books device-time and dollars up to now_; before whoever is there, or in the plan, changes.
  void account();
  void add_point();
  std::int64_t in_plan() const;

  const ReplayInput& input_;
  const ReplayOptions& options_;
  Instant horizon_;
  Instant now_;
  DeviceStates devices_;
  CopyStore copies_;
  ReplayLedger ledger_;
  ReplayResult result_;

  std::optional<TrainingRun> run_;
  std::optional<RecoveryRun> recovery_;
  std::optional<Planned> planned_;
  std::vector<ir::ClusterEvent> late_;  ///< Joins and repairs during the recovery.
  Instant idle_since_;
  std::string idle_reason_;

  models::PlanPointer plan_;   ///< Of JobState.
  models::PlanPointer first_;  ///< Of JobState.
  Seconds iteration_time_;     ///< Of plan_, while it trains.
  std::int64_t done_ = 0;      ///< Last finished iteration, while nothing trains.
  bool health_changed_ = false;
  bool announced_ = false;  ///< Of JobState.
  bool log_open_ = false;   ///< The last interruption has not ended.
  double reference_samples_ = 0;

  Instant accounted_;
  WideCount spare_ = 0, absent_ = 0;
  DollarsPerSecond rate_;
};

}  // namespace orrery::sim
