#include "planners/recovery/kit/answer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "planners/recovery/kit/checkpointing.h"

namespace orrery::planners {

namespace {

using Kind = models::RecoveryPhase::Kind;

constexpr const char* kNever = "never";

/// Without copies that shadows keep: shares are those of the stages alone.
models::PlanPointer without_shadows(const models::PlanPointer& plan) {
  if (plan->redundancy == ir::Redundancy::none) return plan;
  ir::Plan result = *plan;
  result.redundancy = ir::Redundancy::none;
  return std::make_shared<const ir::Plan>(std::move(result));
}

}  // namespace

Happening happening(std::span<const ir::ClusterEvent> events) {
  Happening what;
  for (const ir::ClusterEvent& event : events) {
    switch (event.kind) {
      case ir::EventKind::fail:
      case ir::EventKind::leave:
        what.failure = true;
        (event.scope.kind == ir::EventScope::Kind::job ? what.job : what.lost) = true;
        what.failed = what.failed || event.kind == ir::EventKind::fail;
        if (event.detection && (!what.detection || *what.detection < *event.detection)) {
          what.detection = event.detection;
        }
        break;
      case ir::EventKind::repair:
      case ir::EventKind::join:
        what.capacity = true;
        break;
      case ir::EventKind::notice:
        what.notice = true;
        break;
      case ir::EventKind::slow:
      case ir::EventKind::restore:
      case ir::EventKind::degrade:
        break;
    }
  }
  return what;
}

std::vector<DeviceId> staying(const models::JobState& state) {
  std::vector<DeviceId> result;
  for (const DeviceId device : state.live) {
    const bool leaves =
        std::any_of(state.leaving.begin(), state.leaving.end(),
                    [&](const models::LeavingDevice& l) { return l.device == device; });
    if (!leaves) result.push_back(device);
  }
  return result;
}

std::optional<Instant> deadline_of(const models::JobState& state) {
  const std::vector<DeviceId> devices = ir::working_devices(*state.plan);
  std::optional<Instant> first;
  for (const models::LeavingDevice& leaving : state.leaving) {
    if (!std::binary_search(devices.begin(), devices.end(), leaving.device)) continue;
    if (!first || leaving.at < *first) first = leaving.at;
  }
  return first;
}

bool works_on(const ir::Plan& plan, const std::vector<DeviceId>& live) {
  const std::vector<DeviceId> devices = ir::working_devices(plan);
  return std::includes(live.begin(), live.end(), devices.begin(), devices.end());
}

models::JobState with_gaps(const models::JobState& state) {
  models::JobState result = state;
  for (models::StateReplica& copy : result.replicas) {
    if (copy.layout == nullptr) continue;
    if (copy.location != ir::Location::peer) {
      copy.layout = without_shadows(copy.layout);
      continue;
    }
    const std::vector<DeviceId> devices = ir::devices_of(*copy.layout);
    const std::vector<DeviceId> working = ir::working_devices(*copy.layout);
    std::vector<std::uint32_t> gone = copy.lost_shards;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const DeviceId holder = copy.stored_on.empty() ? devices[i] : copy.stored_on[i];
      const bool lives = std::binary_search(state.live.begin(), state.live.end(), holder);
      if (lives && std::binary_search(working.begin(), working.end(), devices[i])) continue;
      gone.push_back(static_cast<std::uint32_t>(i));
    }
    std::sort(gone.begin(), gone.end());
    gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
    copy.lost_shards = std::move(gone);
    copy.layout = without_shadows(copy.layout);
  }
  return result;
}

models::RecoveryDecision resume(const PolicyInput& input, const models::JobState& state,
                                const Resumption& resumption) {
  models::RecoveryDecision decision;
  decision.action = models::RecoveryDecision::Action::resume;
  decision.plan = resumption.plan;
  decision.reason = resumption.reason;
  const models::JobState left = with_gaps(state);
  const models::PlanPointer to = without_shadows(resumption.plan);
  const models::ReshardBytes bytes = state_bytes(input);
  std::optional<NewestRestore> newest =
      plan_newest_restore(input, left, *to, resumption.order, bytes);
  if (newest) {
    decision.resume_iteration = newest->iteration;
    decision.transfers = std::move(newest->restore.transfers);
  } else if (state.iteration > 0) {
    decision.reason += "; nothing that it reads holds the whole state";
  }
  const bool current = newest && newest->iteration == state.iteration;
  if (resumption.planned && state.training && current && works_on(*state.plan, state.live)) {
    decision.run_on = to_nanoseconds(resumption.decide.duration);
  } else {
    add_phase(decision, Kind::detect, resumption.detect);
    add_phase(decision, Kind::decide, resumption.decide);
  }
  if (!decision.transfers.empty()) {
    decision.phases.push_back({Kind::move_state, Nanoseconds{}, "simulated transfers"});
  }
  add_phase(decision, Kind::reinitialize, resumption.reinitialize);
  return decision;
}

models::RecoveryDecision proceed(std::string reason) {
  models::RecoveryDecision decision;
  decision.reason = std::move(reason);
  return decision;
}

models::RecoveryDecision wait(std::string reason) {
  models::RecoveryDecision decision;
  decision.action = models::RecoveryDecision::Action::wait;
  decision.reason = std::move(reason);
  return decision;
}

Stall detection(const Happening& what, const models::JobState& state, const Phases& own) {
  if (!what.failure) return {};
  if (what.detection) return {to_seconds(*what.detection), "trace"};
  if (what.lost && !state.announced) {
    const bool closes = !what.failed && own.detect_exception.duration < own.detect.duration;
    return closes ? own.detect_exception : own.detect;
  }
  return what.job ? own.detect_exception : Stall{};
}

bool was_recovering(const models::JobState& state, std::span<const ir::ClusterEvent> events,
                    const models::Cluster& cluster) {
  if (state.training || state.plan == nullptr || !works_on(*state.plan, state.live)) return false;
  const std::vector<DeviceId> devices = ir::working_devices(*state.plan);
  return std::none_of(events.begin(), events.end(), [&](const ir::ClusterEvent& event) {
    if (event.kind != ir::EventKind::join && event.kind != ir::EventKind::repair) return false;
    const auto came = event.scope.kind == ir::EventScope::Kind::node
                          ? cluster.devices_of(event.scope.node)
                          : event.scope.devices;
    return std::any_of(came.begin(), came.end(), [&](DeviceId device) {
      return std::binary_search(devices.begin(), devices.end(), device);
    });
  });
}

bool keeps_pending(const models::JobState& state, Seconds decide) {
  return state.pending && works_on(*state.pending->plan, staying(state)) &&
         state.now - state.pending->asked >= to_nanoseconds(decide);
}

models::ReshardBytes state_bytes(const PolicyInput& input) {
  return models::all_state_bytes(input.job);
}

std::vector<models::CheckpointLevel> cloud_checkpoint(const PolicyInput& input,
                                                      const std::string& interval,
                                                      const ir::Plan& plan, Seconds restart,
                                                      Seconds iteration_time) {
  if (interval == kNever || !location_problem(input.cluster, ir::Location::cloud).empty() ||
      iteration_time.value <= 0) {
    return {};
  }
  ir::Plan plain = plan;
  plain.redundancy = ir::Redundancy::none;  // Copies that shadows keep are not written.
  CheckpointCost cost =
      checkpoint_cost(input, plain, ir::Location::cloud, state_bytes(input), true);
  models::CheckpointLevel level;
  level.location = ir::Location::cloud;
  level.stall = to_nanoseconds(cost.snapshot);
  level.persist = to_nanoseconds(cost.snapshot + cost.persist);
  level.every = iterations_between(interval, cost.snapshot, cost.snapshot + cost.persist, restart,
                                   iteration_time, expected_interruptions(input));
  level.source = "option checkpoint_interval = " + interval;
  level.background = std::move(cost.uploads);
  return {level};
}

std::string checkpoint_interval_problem(const std::string& interval) {
  if (interval == kNever) return "";
  const std::string problem = interval_problem(interval);
  return problem.empty() ? "" : problem + ", or never";
}

}  // namespace orrery::planners
