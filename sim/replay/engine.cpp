#include "sim/replay/engine.h"

#include <time.h>

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "models/base/check.h"

namespace orrery::sim {

using Action = models::RecoveryDecision::Action;
using Phase = models::RecoveryPhase;

namespace {

/// Causes of a batch, each once, in trace order.
std::string cause_of(std::span<const ir::ClusterEvent> events) {
  static constexpr const char* kKinds[] = {"fail", "repair", "notice",  "leave",
                                           "join", "slow",   "restore", "degrade"};
  std::string text;
  std::set<std::string> known;
  for (const ir::ClusterEvent& event : events) {
    const std::string cause =
        event.cause.empty() ? kKinds[static_cast<std::size_t>(event.kind)] : event.cause;
    if (!known.insert(cause).second) continue;
    if (!text.empty()) text += ", ";
    text += cause;
  }
  return text;
}

/// CPU time of this thread.
Nanoseconds thread_time() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return {std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec};
}

bool all_live(const std::vector<DeviceId>& devices, const DeviceStates& states) {
  return std::all_of(devices.begin(), devices.end(),
                     [&](DeviceId device) { return states.live(device); });
}

}  // namespace

ReplayEngine::ReplayEngine(const ReplayInput& input, const ReplayOptions& options)
    : input_(input),
      options_(options),
      horizon_{(options.horizon.count > 0 ? options.horizon : input.trace.horizon).count},
      devices_(input.cluster, traces::absent_at_start(input.trace), options.spot_prices),
      copies_(input.cluster) {
  ORRERY_CHECK(horizon_.nanoseconds > 0, "a horizon of {} ns", horizon_.nanoseconds);
  result_.horizon = horizon_ - Instant{};
  result_.priced = true;
}

ReplayResult ReplayEngine::run(const std::function<void(Instant)>& on_progress) {
  const std::vector<ir::ClusterEvent>& events = input_.trace.events;
  std::size_t next = 0;
  const auto coming = [&] { return Events(events).subspan(next); };
  while (next < events.size() && events[next].time == Instant{}) ++next;
  start(Events(events).first(next));
  prefetch_after(coming());
  while (next < events.size() && events[next].time < horizon_) {
    ORRERY_CHECK(events[next].time >= now_, "event {} of the trace goes back in time",
                 events[next].sequence);
    advance_to(events[next].time);
    const Events now = coming().first(batch_size(coming()));
    next += now.size();
    batch(now);
    prefetch_after(coming());
    if (on_progress) on_progress(now_);
  }
  advance_to(horizon_);
  finish();
  return std::move(result_);
}

/// Events at the instant of the first one; those that bring back a node from which something died
/// at this instant are a batch of their own, so that the policy sees the loss.
std::size_t ReplayEngine::batch_size(Events events) const {
  std::set<NodeId> hit;
  const auto nodes_of = [&](const ir::ClusterEvent& event) {
    std::set<NodeId> nodes;
    if (event.scope.kind == ir::EventScope::Kind::node) nodes.insert(event.scope.node);
    if (event.scope.kind == ir::EventScope::Kind::devices) {
      for (const DeviceId device : event.scope.devices) {
        nodes.insert(input_.cluster.device(device).node);
      }
    }
    return nodes;
  };
  std::size_t size = 0;
  for (; size < events.size() && events[size].time == events.front().time; ++size) {
    const ir::EventKind kind = events[size].kind;
    const std::set<NodeId> nodes = nodes_of(events[size]);
    if (kind == ir::EventKind::fail || kind == ir::EventKind::leave) {
      hit.insert(nodes.begin(), nodes.end());
    } else if (kind == ir::EventKind::repair || kind == ir::EventKind::join) {
      if (std::any_of(nodes.begin(), nodes.end(), [&](NodeId n) { return hit.contains(n); })) break;
    }
  }
  return size;
}

void ReplayEngine::start(Events initial) {
  apply(initial);
  rate_ = devices_.rate(result_.priced);
  auto first = input_.policy.first_plan(devices_.live());
  if (const auto* none = std::get_if<models::Infeasible>(&first)) {
    result_.first_plan_problem = none->constraint;
    if (!none->witness.empty()) result_.first_plan_problem += ": " + none->witness;
    idle_reason_ = result_.first_plan_problem;
    add_point();
    return;
  }
  const auto& plan = std::get<models::PlanPointer>(first);
  ORRERY_CHECK(plan != nullptr, "policy '{}' begins with no plan", input_.policy.name());
  const PlanDevices devices(*plan);
  ORRERY_CHECK(all_live(*devices.working, devices_), "policy '{}' begins with a dead device",
               input_.policy.name());
  train(plan, devices);
  // What is there at the start is no news; what will leave or runs slowly is.
  std::vector<ir::ClusterEvent> news;
  for (const ir::ClusterEvent& event : initial) {
    if (event.kind == ir::EventKind::notice || event.kind == ir::EventKind::slow ||
        event.kind == ir::EventKind::degrade) {
      news.push_back(event);
    }
  }
  if (!news.empty()) obey(ask(news), false, cause_of(news));
}

void ReplayEngine::advance_to(Instant until) {
  while (true) {
    if (run_) {
      const auto stop = planned_ ? std::optional(planned_->at) : std::nullopt;
      const bool stopped = run_->advance(until, stop);
      now_ = run_->now();
      if (!stopped) return;
      Planned planned = std::move(*planned_);
      planned_.reset();
      planned.decision.resume_iteration = run_->done();
      recover(std::move(planned.decision), planned.cause);
    } else if (recovery_) {
      const bool finished = recovery_->advance(until);
      now_ = recovery_->now();
      settle_recovery(finished);
      if (!finished) return;
    } else {
      now_ = until;
      return;
    }
  }
}

/// Notes in the copies how far the recovery has come; starts training at its end.
void ReplayEngine::settle_recovery(bool finished) {
  if (recovery_->moved()) copies_.set_gpu(done_, recovery_->plan(), recovery_->devices());
  if (!finished) return;
  account();
  const models::PlanPointer plan = recovery_->plan();
  const PlanDevices devices = recovery_->devices();
  recovery_.reset();
  train(plan, devices);
  tell_of_latecomers();
}

/// What came during the recovery and is not used: the policy was busy then and is asked now.
void ReplayEngine::tell_of_latecomers() {
  std::vector<ir::ClusterEvent> news;
  for (ir::ClusterEvent& event : std::exchange(late_, {})) {
    const bool node = event.scope.kind == ir::EventScope::Kind::node;
    const std::vector<DeviceId> devices =
        node ? input_.cluster.devices_of(event.scope.node) : event.scope.devices;
    const std::vector<DeviceId>& working = *run_->devices().working;
    const bool unused = std::any_of(devices.begin(), devices.end(), [&](DeviceId device) {
      return devices_.live(device) && !std::binary_search(working.begin(), working.end(), device);
    });
    if (unused) news.push_back(std::move(event));
  }
  if (news.empty()) return;
  announced_ = false;
  health_changed_ = false;
  obey(ask(news), false, cause_of(news));
}

void ReplayEngine::batch(Events events) {
  account();
  const bool broken = apply(events);
  rate_ = devices_.rate(result_.priced);
  const std::string cause = cause_of(events);
  const bool busy = recovery_.has_value();
  obey(ask(events), broken, cause);
  if (!busy || !recovery_) return;
  for (const ir::ClusterEvent& event : events) {
    const bool comes = event.kind == ir::EventKind::join || event.kind == ir::EventKind::repair;
    if (comes) late_.push_back(event);
  }
}

bool ReplayEngine::hits(const DeviceStates::Change& change) const {
  if (change.job_failed) return run_ || recovery_;
  return std::any_of(change.died.begin(), change.died.end(), [&](DeviceId device) {
    if (recovery_) return recovery_->needs(device);
    if (!run_) return false;
    const std::vector<DeviceId>& working = *run_->devices().working;
    return std::binary_search(working.begin(), working.end(), device);
  });
}

void ReplayEngine::lose(const DeviceStates::Change& change, CopyStore& copies) {
  for (const DeviceId device : change.died) copies.lose_device(device);
  for (const NodeId node : change.lost_nodes) copies.lose_node(node);
  if (change.job_failed) copies.lose_job();
}

bool ReplayEngine::apply(Events events) {
  copies_.settle(now_);
  if (run_) {
    done_ = run_->done();
    copies_.set_gpu_iteration(done_);
  }
  bool broken = false;
  bool lost = false;
  bool surprise = false;
  health_changed_ = false;
  for (const ir::ClusterEvent& event : events) {
    const DeviceStates::Change change = devices_.apply(event);
    lose(change, copies_);
    broken |= hits(change);
    health_changed_ |= change.health;
    lost |= !change.died.empty();
    surprise |= change.surprise || change.job_failed;
  }
  announced_ = lost && !surprise;
  result_.events += static_cast<std::int64_t>(events.size());
  if (planned_ && (broken || !feasible(planned_->decision))) planned_.reset();
  return broken;
}

models::JobState ReplayEngine::state() const {
  models::JobState state;
  state.now = now_;
  state.iteration = done_;
  state.plan = plan_;
  state.training = run_.has_value();
  state.live = devices_.live();
  state.leaving = devices_.leaving();
  state.slow = devices_.slow();
  state.replicas = copies_.list();
  state.iteration_time = run_ ? iteration_time_ : Seconds{};
  state.announced = announced_;
  state.first = first_;
  if (planned_) state.pending = {planned_->decision.plan, planned_->asked, planned_->at};
  return state;
}

models::RecoveryDecision ReplayEngine::ask(Events events) {
  const models::JobState now = state();
  const Nanoseconds before = options_.measured_planning ? thread_time() : Nanoseconds{};
  models::RecoveryDecision decision = input_.policy.on_events(now, events);
  ++result_.decisions;
  if (options_.measured_planning) {
    Nanoseconds spent = thread_time() - before;
    for (Phase& phase : decision.phases) {
      if (phase.kind != Phase::Kind::decide) continue;
      phase.duration = std::exchange(spent, Nanoseconds{});
      phase.source = "measured";
    }
  }
  return decision;
}

/// Whether all that the decision needs lives.
bool ReplayEngine::feasible(const models::RecoveryDecision& decision) const {
  const auto reachable = [&](ir::Location location, DeviceId device) {
    if (location == ir::Location::cloud) return true;
    if (!device.valid() || device.value >= input_.cluster.size()) return false;
    return location == ir::Location::peer ? devices_.live(device)
                                          : devices_.node_live(input_.cluster.device(device).node);
  };
  return all_live(ir::working_devices(*decision.plan), devices_) &&
         std::all_of(decision.transfers.begin(), decision.transfers.end(),
                     [&](const models::StateTransfer& transfer) {
                       return reachable(transfer.from, transfer.source) &&
                              reachable(transfer.to, transfer.destination);
                     });
}

void ReplayEngine::check(const models::RecoveryDecision& decision, bool broken) const {
  const std::string name = input_.policy.name();
  if (decision.action == Action::proceed) {
    ORRERY_CHECK(!broken, "policy '{}' proceeds at {} ns with a plan that lost a device ({})", name,
                 now_.nanoseconds, decision.reason);
  }
  if (decision.action != Action::resume) return;
  ORRERY_CHECK(decision.plan != nullptr, "policy '{}' resumes without a plan", name);
  ORRERY_CHECK(feasible(decision),
               "policy '{}' resumes at {} ns on, or with state from, a dead device ({})", name,
               now_.nanoseconds, decision.reason);
  ORRERY_CHECK(decision.run_on.count >= 0 ||
                   (decision.resume_iteration >= 0 && decision.resume_iteration <= done_),
               "policy '{}' resumes from iteration {}, the last finished one is {}", name,
               decision.resume_iteration, done_);
  ORRERY_CHECK(decision.run_on.count < 0 || (run_ && !broken),
               "policy '{}' lets a plan run on that does not run ({})", name, decision.reason);
  int moves = 0;
  for (const Phase& phase : decision.phases) {
    ORRERY_CHECK(phase.duration.count >= 0, "policy '{}' has a phase of {} ns", name,
                 phase.duration.count);
    moves += phase.kind == Phase::Kind::move_state ? 1 : 0;
  }
  ORRERY_CHECK(moves <= 1 && (moves == 1 || decision.transfers.empty()),
               "policy '{}' has {} phases that move state, and {} transfers", name, moves,
               decision.transfers.size());
}

void ReplayEngine::obey(models::RecoveryDecision decision, bool broken, const std::string& cause) {
  check(decision, broken);
  if (decision.action == Action::proceed) return proceed();
  const Instant asked = planned_ ? planned_->asked : now_;
  planned_.reset();
  if (decision.action == Action::wait) return stop(cause, decision.reason);
  if (decision.run_on.count < 0) return recover(std::move(decision), cause);
  proceed();
  planned_ = Planned{std::move(decision), now_, cause, asked};
  planned_->at = now_ + planned_->decision.run_on;
  prefetch(*planned_->decision.plan, devices_);
}

void ReplayEngine::proceed() {
  if (!run_ || !health_changed_) return;
  const Seconds time = time_of(*run_->plan(), *run_->devices().working);
  iteration_time_ = time;
  if (to_nanoseconds(time) == run_->iteration()) return;
  refer_to(*run_->plan(), time);
  auto levels = input_.policy.checkpoints(*run_->plan(), time);
  CopyLoad load = take_load(run_->plan(), *run_->devices().working, time, levels);
  run_->retime(to_nanoseconds(time), std::move(levels), std::move(load));
  add_point();
}

/// Ends training, recovering or waiting; the job waits from here on.
void ReplayEngine::stop(const std::string& cause, const std::string& reason) {
  account();
  if (run_) {
    result_.log.push_back({now_, cause, reason, 0, {}});
    ++result_.interruptions;
    log_open_ = true;
    run_->stop(cause);
    done_ = run_->done();
    copies_.set_gpu_iteration(done_);
    run_.reset();
  } else {
    if (log_open_ && result_.log.back().reason.find(reason) == std::string::npos) {
      result_.log.back().reason += "; " + reason;
    }
    if (recovery_) {
      recovery_->stop();
      recovery_.reset();
    } else {
      ledger_.book(Bucket::idle, idle_since_, now_, 0, idle_reason_);
    }
  }
  idle_since_ = now_;
  idle_reason_ = reason;
  add_point();
}

void ReplayEngine::recover(models::RecoveryDecision decision, const std::string& cause) {
  stop(cause, decision.reason);
  done_ = decision.resume_iteration;
  const std::int64_t rolled = ledger_.roll_back(done_, cause);
  if (log_open_) result_.log.back().rolled_back += rolled;
  copies_.settle(now_);
  copies_.roll_back(done_);
  plan_ = decision.plan;
  recovery_.emplace(std::move(decision), now_, input_.transfers, devices_, ledger_);
  prefetch(*plan_, devices_);
  add_point();
}

void ReplayEngine::train(models::PlanPointer plan, const PlanDevices& devices) {
  plan_ = plan;
  if (first_ == nullptr) first_ = plan;
  iteration_time_ = time_of(*plan, *devices.working);
  if (result_.reference.value == 0) {
    const bool healthy = devices_.slow(*devices.working).empty() && devices_.links().empty();
    refer_to(*plan, healthy ? iteration_time_ : input_.iterations.time(*plan, {}, {}));
  }
  refer_to(*plan, iteration_time_);
  copies_.settle(now_);
  copies_.set_gpu(done_, plan, devices);
  if (log_open_) result_.log.back().stall = now_ - result_.log.back().at;
  log_open_ = false;
  auto levels = input_.policy.checkpoints(*plan, iteration_time_);
  CopyLoad load = take_load(plan, *devices.working, iteration_time_, levels);
  run_.emplace(TrainingRun::Start{plan, devices, now_, done_, to_nanoseconds(iteration_time_),
                                  std::move(levels), std::move(load)},
               ledger_, copies_);
  add_point();
}

Seconds ReplayEngine::time_of(const ir::Plan& plan, const std::vector<DeviceId>& devices) const {
  return input_.iterations.time(plan, devices_.slow(devices),
                                {devices_.links().begin(), devices_.links().end()});
}

}  // namespace orrery::sim
