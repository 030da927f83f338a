#include "sim/replay/replay.h"

#include <time.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "sim/replay/accounting.h"
#include "sim/replay/checkpoint_schedule.h"
#include "sim/replay/device_states.h"
#include "sim/replay/event_batch.h"
#include "sim/replay/recovery_run.h"
#include "sim/replay/replay_together.h"
#include "sim/replay/replica_store.h"
#include "sim/replay/training_run.h"

namespace orrery::sim {

using Action = models::RecoveryDecision::Action;
using Phase = models::RecoveryPhase;

std::vector<std::pair<Bucket, const char*>> enum_names(Bucket) {
  return {{Bucket::productive, "productive"},
          {Bucket::degraded, "degraded"},
          {Bucket::rolled_back, "rolled_back"},
          {Bucket::checkpoint, "checkpoint"},
          {Bucket::detect, "detect"},
          {Bucket::decide, "decide"},
          {Bucket::move_state, "move_state"},
          {Bucket::reinitialize, "reinitialize"},
          {Bucket::idle, "idle"}};
}

const char* name_of(Bucket bucket) {
  static const auto kNames = enum_names(bucket);
  return kNames[index_of(bucket)].second;
}

namespace {

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

/// A timer whose iterations take `factor` times as long.
class StretchedTimer final : public IterationTimer {
 public:
  explicit StretchedTimer(const IterationTimer& timer) : timer_(timer) {}
  Seconds time(const ir::Plan& plan, const IterationConditions& conditions) const override {
    return factor * timer_.time(plan, conditions);
  }
  double factor = 1;

 private:
  const IterationTimer& timer_;
};

/// The clock and the event loop. At any instant the job trains (run_), recovers (recovery_), or
/// waits.
class Replay {
 public:
  Replay(const ReplayInput& input, const ReplayOptions& options)
      : input_(input),
        iterations_(input.iterations),
        options_(options),
        horizon_{(options.horizon.count > 0 ? options.horizon : input.trace.horizon).count},
        devices_(input.cluster, traces::absent_at_start(input.trace), options.spot_prices),
        replicas_(input.cluster),
        accounting_(input.cluster, devices_, horizon_) {
    ORRERY_CHECK(horizon_.nanoseconds > 0, "a horizon of {} ns", horizon_.nanoseconds);
  }

  void begin() {
    const Events events = input_.trace.events;
    while (next_ < events.size() && events[next_].time == Instant{}) ++next_;
    start(events.first(next_));
  }

  Instant now() const { return now_; }
  Instant horizon() const { return horizon_; }
  /// Of the trace; the horizon where there is none before it.
  Instant next_event() const {
    const Events events = input_.trace.events;
    return next_ < events.size() ? std::min(events[next_].time, horizon_) : horizon_;
  }
  /// No later than the next event, and than the job by itself begins or ends to train.
  Instant next_change() const {
    if (recovery_) return std::min(next_event(), recovery_->phase_end());
    if (!run_ || !pending_) return next_event();
    return std::min(next_event(), pending_->at > now_ ? pending_->at : run_->activity_end());
  }

  /// Goes on to `until`, no later than the next event, and handles a batch of events if it is of
  /// that instant.
  void go_to(Instant until) {
    if (run_) lost_to_others_ += (1 - 1 / iterations_.factor) * to_seconds(until - now_);
    if (until == horizon_) return advance_to(until);
    const bool happens = next_event() == until;
    if (happens) {
      ORRERY_CHECK(until >= now_, "event {} of the trace goes back in time",
                   input_.trace.events[next_].sequence);
    }
    advance_to(until);
    if (!happens) return;
    const Events batch = first_batch(Events(input_.trace.events).subspan(next_), input_.cluster);
    next_ += batch.size();
    handle(batch);
  }

  /// What trains; null: nothing.
  models::PlanPointer training() const { return run_ ? run_->plan() : nullptr; }
  /// Iterations take `factor` times as long as alone from now on.
  void slow_down(double factor) {
    if (factor == iterations_.factor) return;
    iterations_.factor = factor;
    if (run_) retime();
  }
  Seconds lost_to_others() const { return lost_to_others_; }

  /// At the horizon.
  ReplayResult finish() {
    account();
    add_point();
    accounting_.fix_reference();
    if (run_) {
      run_->finish();
    } else if (recovery_) {
      recovery_->stop();
    } else {
      accounting_.ledger().add(Bucket::idle, idle_since_, now_, 0, idle_reason_);
    }
    accounting_.end_interruption(now_);
    return accounting_.finish(input_.job, options_.record_spans);
  }

 private:
  /// A switch that the policy has asked for; training continues until it begins.
  struct Pending {
    models::RecoveryDecision decision;
    Instant at;
    std::string cause;
    Instant
        asked;  ///< If it replaced other pending switches: when the first of them was asked for.
  };

  // ---- the clock ----

  void start(Events initial) {
    apply_events(initial);
    accounting_.update_price();
    auto first = input_.policy.first_plan(devices_.live());
    if (const auto* none = std::get_if<models::Infeasible>(&first)) {
      std::string& problem = accounting_.result().first_plan_problem;
      problem = none->constraint;
      if (!none->witness.empty()) problem += ": " + none->witness;
      idle_reason_ = problem;
      return add_point();
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
    if (!news.empty()) apply_decision(ask(news), false, cause_of(news));
  }

  void advance_to(Instant until) {
    while (true) {
      if (run_) {
        const auto stop = pending_ ? std::optional(pending_->at) : std::nullopt;
        const bool stopped = run_->advance(until, stop);
        now_ = run_->now();
        if (!stopped) return;
        Pending pending = std::move(*pending_);
        pending_.reset();
        pending.decision.resume_iteration = run_->done();
        recover(std::move(pending.decision), pending.cause);
      } else if (recovery_) {
        const bool finished = recovery_->advance(until);
        now_ = recovery_->now();
        if (recovery_->moved()) {
          replicas_.set_gpu(done_, recovery_->plan(), recovery_->devices());
        }
        if (!finished) return;
        end_recovery();
      } else {
        now_ = until;
        return;
      }
    }
  }

  void end_recovery() {
    account();
    const models::PlanPointer plan = recovery_->plan();
    const PlanDevices devices = recovery_->devices();
    recovery_.reset();
    train(plan, devices);
    report_late_arrivals();
    if (!input_.policy.asks_after_recovery() || !run_ || pending_) return;
    announced_ = false;
    health_changed_ = false;
    apply_decision(ask({}), false, "after a recovery");
  }

  /// What came during the recovery and is not used: the policy was busy then and is asked now.
  void report_late_arrivals() {
    std::vector<ir::ClusterEvent> news;
    for (ir::ClusterEvent& event : std::exchange(late_, {})) {
      const bool node = event.scope.kind == ir::EventScope::Kind::node;
      const std::vector<DeviceId> devices =
          node ? input_.cluster.devices_of(event.scope.node) : event.scope.devices;
      const bool unused = std::any_of(devices.begin(), devices.end(), [&](DeviceId device) {
        return devices_.live(device) && !run_->devices().works(device);
      });
      if (unused) news.push_back(std::move(event));
    }
    if (news.empty()) return;
    announced_ = false;
    health_changed_ = false;
    apply_decision(ask(news), false, cause_of(news));
  }

  void handle(Events batch) {
    account();
    const bool broken = apply_events(batch);
    accounting_.update_price();
    const bool busy = recovery_.has_value();
    apply_decision(ask(batch), broken, cause_of(batch));
    if (!busy || !recovery_) return;
    for (const ir::ClusterEvent& event : batch) {
      const bool comes = event.kind == ir::EventKind::join || event.kind == ir::EventKind::repair;
      if (comes) late_.push_back(event);
    }
  }

  // ---- events ----

  /// True if the plan cannot go on as it is.
  bool apply_events(Events events) {
    replicas_.settle(now_);
    if (run_) {
      done_ = run_->done();
      replicas_.set_gpu_iteration(done_);
    }
    const DeviceStates::Change change = devices_.apply(events);
    replicas_.lose(change);
    health_changed_ = change.health;
    announced_ = change.announced();
    accounting_.result().events += static_cast<std::int64_t>(events.size());
    const bool broken = breaks(change);
    if (pending_ && (broken || !feasible(pending_->decision))) pending_.reset();
    return broken;
  }

  bool breaks(const DeviceStates::Change& change) const {
    if (change.job_failed && (run_ || recovery_)) return true;
    return std::any_of(change.died.begin(), change.died.end(), [&](DeviceId device) {
      return recovery_ ? recovery_->needs(device) : run_ && run_->devices().works(device);
    });
  }

  models::JobState state() const {
    models::JobState state;
    state.now = now_;
    state.iteration = done_;
    state.plan = plan_;
    state.training = run_.has_value();
    devices_.describe_in(state);
    state.replicas = replicas_.list();
    state.iteration_time = run_ ? iteration_time_ : Seconds{};
    state.announced = announced_;
    state.first = first_;
    state.pending = pending_switch();
    return state;
  }

  std::optional<models::PendingSwitch> pending_switch() const {
    if (!pending_) return std::nullopt;
    return models::PendingSwitch{pending_->decision.plan, pending_->asked, pending_->at};
  }

  models::RecoveryDecision ask(Events events) {
    const models::JobState now = state();
    const Nanoseconds before = options_.measured_planning ? thread_time() : Nanoseconds{};
    models::RecoveryDecision decision = input_.policy.on_events(now, events);
    ++accounting_.result().decisions;
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

  // ---- decisions ----

  /// Whether everything that the decision needs lives.
  bool feasible(const models::RecoveryDecision& decision) const {
    const auto reachable = [&](ir::Location location, DeviceId device) {
      if (location == ir::Location::cloud) return true;
      if (!device.valid() || device.value >= input_.cluster.size()) return false;
      return location == ir::Location::peer
                 ? devices_.live(device)
                 : devices_.node_live(input_.cluster.device(device).node);
    };
    return all_live(ir::working_devices(*decision.plan), devices_) &&
           std::all_of(decision.transfers.begin(), decision.transfers.end(),
                       [&](const models::StateTransfer& transfer) {
                         return reachable(transfer.from, transfer.source) &&
                                reachable(transfer.to, transfer.destination);
                       });
  }

  void check(const models::RecoveryDecision& decision, bool broken) const {
    const std::string name = input_.policy.name();
    if (decision.action == Action::proceed) {
      ORRERY_CHECK(!broken, "policy '{}' proceeds at {} ns with a plan that lost a device ({})",
                   name, now_.nanoseconds, decision.reason);
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

  void apply_decision(models::RecoveryDecision decision, bool broken, const std::string& cause) {
    check(decision, broken);
    if (decision.action == Action::proceed) return proceed();
    const Instant asked = pending_ ? pending_->asked : now_;
    pending_.reset();
    if (decision.action == Action::wait) return stop(cause, decision.reason);
    if (decision.run_on.count < 0) return recover(std::move(decision), cause);
    proceed();
    pending_ = Pending{std::move(decision), now_, cause, asked};
    pending_->at = now_ + pending_->decision.run_on;
  }

  void proceed() {
    if (run_ && health_changed_) retime();
  }

  void retime() {
    const models::PlanPointer& plan = run_->plan();
    iteration_time_ = time_of(*plan, run_->devices());
    if (to_nanoseconds(iteration_time_) == run_->iteration()) return;
    accounting_.consider_reference(*plan, time_alone(iteration_time_));
    run_->retime(to_nanoseconds(iteration_time_), checkpoints(plan, run_->devices()));
    add_point();
  }

  /// Ends training, recovering or waiting; the job waits from here on.
  void stop(const std::string& cause, const std::string& reason) {
    account();
    if (run_) {
      accounting_.interrupt(now_, cause, reason);
      run_->stop(cause);
      done_ = run_->done();
      replicas_.set_gpu_iteration(done_);
      run_.reset();
    } else {
      accounting_.add_reason(reason);
      if (recovery_) {
        recovery_->stop();
        recovery_.reset();
      } else {
        accounting_.ledger().add(Bucket::idle, idle_since_, now_, 0, idle_reason_);
      }
    }
    idle_since_ = now_;
    idle_reason_ = reason;
    add_point();
  }

  void recover(models::RecoveryDecision decision, const std::string& cause) {
    stop(cause, decision.reason);
    done_ = decision.resume_iteration;
    accounting_.add_rolled_back(accounting_.ledger().roll_back(done_, cause));
    replicas_.settle(now_);
    replicas_.roll_back(done_);
    plan_ = decision.plan;
    recovery_.emplace(std::move(decision), now_, input_.transfers, devices_, accounting_.ledger());
    add_point();
  }

  void train(models::PlanPointer plan, const PlanDevices& devices) {
    plan_ = plan;
    if (first_ == nullptr) first_ = plan;
    iteration_time_ = time_of(*plan, devices);
    if (!accounting_.has_reference()) {
      const IterationConditions now = devices_.conditions(*devices.working);
      const bool healthy = now.slow.empty() && now.degraded_links.empty();
      accounting_.consider_reference(
          *plan, healthy ? time_alone(iteration_time_) : input_.iterations.time(*plan, {}));
    }
    accounting_.consider_reference(*plan, time_alone(iteration_time_));
    replicas_.settle(now_);
    replicas_.set_gpu(done_, plan, devices);
    accounting_.end_interruption(now_);
    run_.emplace(TrainingRun::Start{plan, devices, now_, done_, to_nanoseconds(iteration_time_),
                                    checkpoints(plan, devices)},
                 accounting_.ledger(), replicas_);
    add_point();
  }

  Seconds time_of(const ir::Plan& plan, const PlanDevices& devices) const {
    return iterations_.time(plan, devices_.conditions(*devices.working));
  }
  Seconds time_alone(Seconds time) const { return time / iterations_.factor; }

  CheckpointSchedule checkpoints(const models::PlanPointer& plan,
                                 const PlanDevices& devices) const {
    return schedule_checkpoints(input_.policy.checkpoints(*plan, iteration_time_), plan,
                                iteration_time_, devices_.conditions(*devices.working),
                                options_.background_transfers ? &iterations_ : nullptr);
  }

  // ---- accounting ----

  std::int64_t in_plan() const {
    if (run_) return run_->devices().working_count();
    return recovery_ ? recovery_->devices().working_count() : 0;
  }
  void account() { accounting_.advance(now_, in_plan()); }
  void add_point() {
    ReplayPoint point;
    point.at = now_;
    point.iterations = run_ ? run_->done() : done_;
    point.in_plan = static_cast<int>(in_plan());
    if (run_) {
      const auto samples = static_cast<double>(ir::global_batch(*run_->plan()));
      point.samples_per_second = samples / to_seconds(run_->iteration()).value;
    }
    accounting_.add_point(point);
  }

  const ReplayInput& input_;
  StretchedTimer iterations_;
  const ReplayOptions& options_;
  std::size_t next_ = 0;  ///< Event of the trace.
  Seconds lost_to_others_;
  Instant horizon_;
  Instant now_;
  DeviceStates devices_;
  ReplicaStore replicas_;
  Accounting accounting_;

  std::optional<TrainingRun> run_;
  std::optional<RecoveryRun> recovery_;
  std::optional<Pending> pending_;
  std::vector<ir::ClusterEvent> late_;  ///< Joins and repairs during the recovery.
  Instant idle_since_;
  std::string idle_reason_;

  models::PlanPointer plan_;   ///< As in JobState.
  models::PlanPointer first_;  ///< As in JobState.
  Seconds iteration_time_;     ///< Of plan_, while it trains.
  std::int64_t done_ = 0;      ///< Last finished iteration, while nothing trains.
  bool health_changed_ = false;
  bool announced_ = false;  ///< As in JobState.
};

}  // namespace

ReplayResult replay(const ReplayInput& input, const ReplayOptions& options,
                    const std::function<void(Instant)>& on_progress) {
  Replay job(input, options);
  job.begin();
  while (job.next_event() < job.horizon()) {
    job.go_to(job.next_event());
    if (on_progress) on_progress(job.now());
  }
  job.go_to(job.horizon());
  return job.finish();
}

std::vector<JobReplay> replay_together(std::span<const ReplayInput> inputs,
                                       const ReplayOptions& options,
                                       const InterferenceTimer& interference,
                                       const std::function<void(Instant)>& on_progress) {
  std::vector<std::unique_ptr<Replay>> jobs;
  for (const ReplayInput& input : inputs) {
    jobs.push_back(std::make_unique<Replay>(input, options));
    jobs.back()->begin();
    ORRERY_CHECK(jobs.back()->horizon() == jobs.front()->horizon(), "jobs of different horizons");
  }
  std::vector<models::PlanPointer> trained(jobs.size());
  const auto set_rates = [&] {
    std::vector<models::PlanPointer> now;
    for (const auto& job : jobs) now.push_back(job->training());
    if (now == trained) return;
    trained = std::move(now);
    std::vector<RunningJob> running;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (trained[i] != nullptr) running.push_back({i, trained[i]});
    }
    const std::vector<double> slowdowns = interference.slowdowns(running);
    for (std::size_t k = 0; k < running.size(); ++k) jobs[running[k].job]->slow_down(slowdowns[k]);
  };
  set_rates();
  const Instant horizon = jobs.front()->horizon();
  for (Instant now; now < horizon;) {
    now = horizon;
    for (const auto& job : jobs) now = std::min(now, job->next_change());
    for (const auto& job : jobs) job->go_to(now);
    set_rates();
    if (on_progress) on_progress(now);
  }
  std::vector<JobReplay> results;
  for (const auto& job : jobs) {
    const Seconds lost = job->lost_to_others();
    results.push_back({job->finish(), lost});
  }
  return results;
}

}  // namespace orrery::sim
