/// Small clusters, traces written event by event, and policies made of functions.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "models/interfaces/recovery_policy.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "sim/replay/fixed_timer.h"
#include "sim/replay/replay.h"
#include "traces/trace.h"

namespace orrery::sim {

inline constexpr std::int64_t kSecond = 1'000'000'000;
inline Nanoseconds seconds(double s) { return to_nanoseconds(Seconds{s}); }
inline Instant at_second(double s) { return {seconds(s).count}; }

/// Nodes of equal GPUs at 3600 dollars per second / 1000 and device: 3.6 dollars a second.
models::Cluster replay_cluster(int nodes, int gpus);
/// Two replicas of one block on each of the devices given, one sample each.
models::PlanPointer plan_on(const std::vector<int>& devices);
models::PlanPointer plan_on(const std::vector<DeviceId>& devices);
models::Job replay_job();

class EventList {
 public:
  EventList(const models::Cluster& cluster, double horizon_seconds);
  EventList& devices(double second, ir::EventKind kind, std::vector<int> ids, double factor = 1);
  EventList& node(double second, ir::EventKind kind, int node, double notice = 0);
  EventList& job(double second, ir::EventKind kind, double factor = 1);
  EventList& link(double second, ir::EventKind kind, const std::string& name, double factor = 1);
  ir::ClusterEvent& last() { return trace.events.back(); }
  traces::Trace trace;

 private:
  ir::ClusterEvent& add(double second, ir::EventKind kind);
};

/// Starts on all live devices and answers as it is told; without an answer it proceeds while its
/// plan lives, else goes on at once with what lives from the last iteration.
class TestPolicy : public models::RecoveryPolicy {
 public:
  using Events = std::span<const ir::ClusterEvent>;
  std::string name() const override { return "test"; }
  std::variant<models::PlanPointer, models::Infeasible> first_plan(
      const std::vector<DeviceId>& live) const override;
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override;
  models::RecoveryDecision on_events(const models::JobState& state, Events events) const override;

  std::vector<models::CheckpointLevel> levels;
  std::function<std::int64_t(const ir::Plan&)> every;  ///< Of all levels, instead of their own.
  std::function<models::RecoveryDecision(const models::JobState&, Events)> answer;
  int needs = 1;  ///< Devices without which there is no plan.
  mutable std::vector<models::JobState> asked;
};

models::RecoveryDecision proceed();
models::RecoveryDecision wait();
models::RecoveryDecision resume(models::PlanPointer plan, std::int64_t iteration,
                                std::vector<models::RecoveryPhase> phases = {});
models::RecoveryPhase phase(models::RecoveryPhase::Kind kind, double seconds);
models::CheckpointLevel level(ir::Location location, std::int64_t every, double stall,
                              double persist);

/// A FixedIterationTimer of 10 s, and a second more for each GB/s of background transfers.
class SlowedTimer final : public IterationTimer {
 public:
  Seconds time(const ir::Plan& plan, const IterationConditions& conditions) const override;
};

/// Replay with a SlowedTimer and transfers of 7 s, spans recorded.
ReplayResult run(const models::Cluster& cluster, const traces::Trace& trace,
                 const models::RecoveryPolicy& policy, ReplayOptions options = {});
double wall(const ReplayResult& result, Bucket bucket);

}  // namespace orrery::sim
