#include "planners/recovery/kit/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "models/reshard/reshard_plan.h"
#include "planners/recovery/kit/transfer_estimate.h"

namespace orrery::planners {

namespace {

/// Without the copies that shadows keep: shards are those of the stages alone.
models::PlanPointer without_shadows(const models::PlanPointer& plan) {
  if (plan->redundancy == ir::Redundancy::none) return plan;
  ir::Plan result = *plan;
  result.redundancy = ir::Redundancy::none;
  return std::make_shared<const ir::Plan>(std::move(result));
}

}  // namespace

EventSummary summarize(std::span<const ir::ClusterEvent> events) {
  EventSummary what;
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
      case ir::EventKind::slow:
      case ir::EventKind::restore:
      case ir::EventKind::degrade:
        break;
    }
  }
  return what;
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

models::JobState with_losses(const models::JobState& state) {
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
  const models::JobState left = with_losses(state);
  const models::PlanPointer to = without_shadows(resumption.plan);
  std::optional<NewestRestore> newest =
      newest_restore(input, left, *to, resumption.order, models::all_state_bytes(input.job));
  if (newest) {
    decision.resume_iteration = newest->iteration;
    decision.transfers = std::move(newest->restore.transfers);
  } else if (state.iteration > 0) {
    decision.reason += "; nothing that it reads holds the whole state";
  }
  const bool current = newest && newest->iteration == state.iteration;
  if (resumption.planned && state.training && current && runs_on(*state.plan, state.live)) {
    decision.run_on = to_nanoseconds(resumption.decide.duration + resumption.preparation);
  } else {
    add_phase(decision, PhaseKind::detect, resumption.detect);
    add_phase(decision, PhaseKind::decide, resumption.decide);
  }
  if (!decision.transfers.empty()) {
    decision.phases.push_back({PhaseKind::move_state, Nanoseconds{}, "simulated transfers"});
  }
  add_phase(decision, PhaseKind::reinitialize, resumption.reinitialize);
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

models::RecoveryDecision wait(const models::Infeasible& why) {
  return wait(why.constraint + ": " + why.witness);
}

models::RecoveryDecision before_deadline(const PolicyInput& input, const models::JobState& state,
                                         Instant deadline, models::RecoveryDecision change) {
  const Seconds needed = stall_estimate(input, change) + state.iteration_time;
  const Nanoseconds left = deadline - state.now;
  if (to_nanoseconds(needed) + change.run_on > left) {
    return proceed(fmt::format("a planned change takes {:.0f} s, the notice leaves {:.0f} s",
                               (needed + to_seconds(change.run_on)).value, to_seconds(left).value));
  }
  change.run_on = left - to_nanoseconds(needed);
  return change;
}

bool growth_is_profitable(Seconds before, Seconds after, Seconds stall, Seconds horizon) {
  return (horizon - stall) / after > horizon / before;
}

Stall detection(const EventSummary& what, const models::JobState& state, const Phases& own) {
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
  if (state.training || state.plan == nullptr || !runs_on(*state.plan, state.live)) return false;
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
  return state.pending && runs_on(*state.pending->plan, usable(state)) &&
         state.now - state.pending->asked >= to_nanoseconds(decide);
}

}  // namespace orrery::planners
