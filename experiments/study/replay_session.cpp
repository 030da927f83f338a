#include "experiments/study/replay_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <variant>

#include "experiments/study/checks.h"
#include "experiments/study/clock.h"
#include "experiments/study/execute.h"
#include "experiments/study/limits.h"
#include "experiments/study/run_tasks.h"
#include "experiments/study/version.h"
#include "models/base/bytes.h"
#include "models/base/check.h"
#include "models/base/hash.h"
#include "models/interfaces/answer_bytes.h"
#include "models/spec/topology.h"
#include "planners/catalog.h"
#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/replan.h"
#include "sim/replay/replay.h"
#include "sim/replay/replay_together.h"
#include "sim/replay/simulated_interference.h"
#include "sim/replay/simulated_timers.h"
#include "traces/rate.h"
#include "traces/split.h"

namespace orrery::experiments {
namespace {

constexpr double kSecondsPerDay = 86400;

double simulating(const sim::SimulatedTimers& timers) {
  return timers.iterations().counts().simulating.value +
         timers.transfers().counts().simulating.value;
}

planners::Options options_of(const ReplayPolicy& policy) {
  return {policy.options.begin(), policy.options.end()};
}

/// Devices of the running plan, or the job itself, were hit without an announcement.
bool interrupts(const models::JobState& state, std::span<const ir::ClusterEvent> events,
                const models::Cluster& cluster) {
  if (state.plan == nullptr) return false;
  const std::vector<DeviceId> used = ir::working_devices(*state.plan);
  return std::any_of(events.begin(), events.end(), [&](const ir::ClusterEvent& event) {
    const bool loss = event.kind == ir::EventKind::fail || event.kind == ir::EventKind::leave;
    if (!loss || event.cause == traces::kPlannedMaintenance) return false;
    if (event.scope.kind == ir::EventScope::Kind::job) return true;
    const std::vector<DeviceId> hit = event.scope.kind == ir::EventScope::Kind::node
                                          ? cluster.devices_of(event.scope.node)
                                          : event.scope.devices;
    return std::any_of(hit.begin(), hit.end(), [&](DeviceId device) {
      return std::binary_search(used.begin(), used.end(), device);
    });
  });
}

/// Measures how long a policy thinks, without what it lets be simulated meanwhile, and counts the
/// interruptions that it sees.
class TimedPolicy final : public models::RecoveryPolicy {
 public:
  TimedPolicy(const models::RecoveryPolicy& policy, const sim::SimulatedTimers& timers,
              const models::Cluster& cluster, planners::InterruptionsSeen& seen, double& seconds,
              std::vector<CheckpointTaken>& first_levels)
      : policy_(policy),
        timers_(timers),
        cluster_(cluster),
        seen_(seen),
        seconds_(seconds),
        first_levels_(first_levels) {}
  std::string name() const override { return policy_.name(); }
  std::variant<models::PlanPointer, models::Infeasible> first_plan(
      const std::vector<DeviceId>& live) const override {
    const Watch watch(*this);
    return policy_.first_plan(live);
  }
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override {
    const Watch watch(*this);
    std::vector<models::CheckpointLevel> levels = policy_.checkpoints(plan, iteration_time);
    if (first_levels_.empty()) {
      for (const models::CheckpointLevel& level : levels) {
        first_levels_.push_back(
            {level.location, static_cast<double>(level.every) * iteration_time});
      }
    }
    return levels;
  }
  models::RecoveryDecision on_events(const models::JobState& state,
                                     std::span<const ir::ClusterEvent> events) const override {
    const Watch watch(*this);
    if (interrupts(state, events, cluster_)) ++seen_.count;
    seen_.elapsed = to_seconds(state.now - Instant{});
    return policy_.on_events(state, events);
  }
  bool asks_after_recovery() const override { return policy_.asks_after_recovery(); }

 private:
  /// Adds the time of its life.
  class Watch {
   public:
    explicit Watch(const TimedPolicy& of)
        : of_(of), start_(Clock::now()), simulated_(simulating(of.timers_)) {}
    ~Watch() { of_.seconds_ += seconds_since(start_) - (simulating(of_.timers_) - simulated_); }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    const TimedPolicy& of_;
    Clock::time_point start_;
    double simulated_;
  };

  const models::RecoveryPolicy& policy_;
  const sim::SimulatedTimers& timers_;
  const models::Cluster& cluster_;
  planners::InterruptionsSeen& seen_;
  double& seconds_;
  std::vector<CheckpointTaken>& first_levels_;
};

/// Searches of policies, remembered in the store of answers beside the iterations that they ask
/// for.
class RememberedSearches final : public planners::KnownSearches {
 public:
  /// Keeps references.
  RememberedSearches(const models::AnswerStore& answers, const sim::SimulatedTimers& timers,
                     bool ignore_leaves, std::string version)
      : answers_(answers),
        timers_(timers),
        ignore_leaves_(ignore_leaves),
        version_(std::move(version)) {}

  planners::FoundPlan plan(const std::string& question,
                           const std::function<planners::FoundPlan()>& search) const override {
    ByteWriter asked;
    asked.put(std::string_view("searches"));
    asked.put(std::string_view(version_));
    asked.put(std::string_view(timers_.context()));
    asked.put(ignore_leaves_);
    asked.put(std::string_view(question));
    const std::string key = content_digest(asked.bytes());
    if (const auto known = answers_.find(key)) {
      ByteReader in(*known);
      planners::FoundPlan found = models::Infeasible{};
      if (in.get<bool>()) {
        found = std::make_shared<const ir::Plan>(models::get_plan(in));
      } else {
        const std::string constraint = in.text();
        found = models::Infeasible{constraint, in.text()};
      }
      const std::string iterations = in.text();
      if (in.complete() && timers_.iterations().count_asked(iterations)) return found;
    }
    planners::FoundPlan found;
    const std::string iterations = timers_.iterations().record([&] { found = search(); });
    ByteWriter answer;
    const auto* plan = std::get_if<models::PlanPointer>(&found);
    answer.put(plan != nullptr);
    if (plan != nullptr) {
      models::put(answer, **plan);
    } else {
      const auto& none = std::get<models::Infeasible>(found);
      answer.put(std::string_view(none.constraint));
      answer.put(std::string_view(none.witness));
    }
    answer.put(std::string_view(iterations));
    answers_.keep(key, answer.bytes());
    return found;
  }

 private:
  const models::AnswerStore& answers_;
  const sim::SimulatedTimers& timers_;
  bool ignore_leaves_;
  std::string version_;  ///< Of the planners that are asked.
};

/// Of the planner that the policy asks for new plans.
std::map<std::string, std::string> planner_options(const ReplayPolicy& policy) {
  planners::PlannerOptions options;
  std::string error;  // They were checked.
  const auto text = policy.options.find("planner_options");
  if (text != policy.options.end()) planners::from_scalar(text->second, options, error);
  return {options.values.begin(), options.values.end()};
}

/// Of the planners that the policy may ask: those that its options name.
std::string version_of_planners(const ReplayPolicy& policy) {
  CodeParts parts;
  for (const auto& [name, value] : all_options(policy)) parts.merge(parts_of_planner(value));
  return version_of(parts);
}

/// Share of the cluster's devices that the given plan uses; a policy's own plans use nearly all.
double share_in_use(const LoadedReplayCase& loaded) {
  if (!loaded.plan) return 1;
  return static_cast<double>(ir::devices_of(*loaded.plan).size()) /
         static_cast<double>(loaded.cluster.devices.size());
}

/// Only the first nodes stay.
void keep_nodes(const ReplayCase& one, const std::optional<ir::Plan>& plan,
                models::Cluster& cluster, config::Diagnostics& diagnostics) {
  const auto all = static_cast<std::int64_t>(cluster.nodes.size());
  if (*one.nodes > all) {
    diagnostics.add(one.cluster.at,
                    fmt::format("`nodes` is {}, the cluster has {}", *one.nodes, all));
    return;
  }
  cluster.nodes.resize(*one.nodes);
  std::erase_if(cluster.overrides, [&](const models::PairOverride& pair) {
    return pair.a.value >= *one.nodes || pair.b.value >= *one.nodes;
  });
  models::seal(cluster);
  if (plan && ir::devices_of(*plan).back().value >= cluster.size()) {
    diagnostics.add(one.cluster.at,
                    fmt::format("the plan uses devices beyond the first {} nodes", *one.nodes));
  }
}

std::vector<DeviceId> all_devices(const models::Cluster& cluster) {
  std::vector<DeviceId> all;
  for (const models::Device& device : cluster.devices) all.push_back(device.id);
  return all;
}

/// Has the case's planner make the plan.
LoadedReplayCase planned(LoadedReplayCase loaded, const models::AnswerStore* answers) {
  RunTask task;
  task.name = loaded.spec.planner->name.value;
  task.run.cluster = loaded.cluster;
  task.run.workload = loaded.workload;
  task.run.profile = loaded.profile;
  task.run.profile_hash = loaded.hashes.profile;
  static_cast<TrainingInputs&>(task.run.spec) = loaded.spec;
  task.run.spec.planner = loaded.spec.planner;
  task.run.devices = all_devices(loaded.cluster);
  RunReport report = run_tasks({task}, {}, answers).front();
  if (report.plan) return with_plan(std::move(loaded), std::move(*report.plan));
  loaded.no_plan = std::move(report.infeasible);
  return loaded;
}

}  // namespace

LoadedReplayCase load_replay_case(const ReplayCase& one, const std::string& folder,
                                  const models::Library& library, config::Diagnostics& diagnostics,
                                  const models::AnswerStore* answers) {
  const std::size_t before = diagnostics.problems().size();
  RunSpec spec;
  static_cast<TrainingInputs&>(spec) = one;
  spec.planner = one.planner;
  spec.cluster = beside_or_named(one.cluster, folder);
  spec.model = beside_or_named(one.model, folder);
  LoadedRun run = load_run(spec, folder, library, diagnostics);
  if (diagnostics.problems().size() == before) {
    check_batch(spec, run.cluster, run.workload, diagnostics);
  }
  LoadedReplayCase loaded;
  loaded.spec = one;
  loaded.cluster = std::move(run.cluster);
  if (diagnostics.problems().size() == before && one.nodes) {
    keep_nodes(one, run.plan, loaded.cluster, diagnostics);
  }
  loaded.workload = std::move(run.workload);
  loaded.profile = std::move(run.profile);
  loaded.plan = std::move(run.plan);
  loaded.hashes.cluster = loaded.cluster.hash;
  loaded.hashes.workload = loaded.workload.hash;
  loaded.hashes.profile = run.profile_hash;
  if (loaded.plan) loaded.hashes.plan = models::plan_hash(*loaded.plan);
  if (diagnostics.problems().size() != before) return loaded;
  loaded.traces = TraceSource(one, folder, loaded.cluster, diagnostics);
  loaded.hashes.trace = loaded.traces.hash();
  if (one.expected_mtbf) {
    loaded.interruptions = {1 / one.expected_mtbf->value, "expected_mtbf"};
  } else if (diagnostics.problems().size() == before) {
    loaded.interruptions = loaded.traces.interruptions(share_in_use(loaded));
  }
  const bool complete = diagnostics.problems().size() == before && loaded.traces.absent().empty();
  return one.planner && complete ? planned(std::move(loaded), answers) : loaded;
}

LoadedReplayCase with_plan(LoadedReplayCase loaded, ir::Plan plan) {
  loaded.hashes.plan = models::plan_hash(plan);
  loaded.plan = std::move(plan);
  if (!loaded.spec.expected_mtbf) {
    loaded.interruptions = loaded.traces.interruptions(share_in_use(loaded));
  }
  return loaded;
}

Identity replay_identity(const LoadedReplayCase& loaded, ReplayRun run) {
  run.policy.value.label.clear();
  run.policy.value.options = all_options(with_measured_phases(run.policy.value, loaded.profile));
  Identity identity{config::to_value(run),
                    {{"cluster", loaded.hashes.cluster},
                     {"workload", loaded.hashes.workload},
                     {"trace", loaded.hashes.trace},
                     {"plan", loaded.hashes.plan},
                     {"profile", loaded.hashes.profile}}};
  if (power_decides(planner_options(run.policy.value))) {
    identity.hashes.emplace_back("power", loaded.cluster.power_hash);
  }
  identity.settings.append(
      "expected_interruptions",
      to_map({{"per_second", fmt::format("{}", loaded.interruptions.per_second)},
              {"source", loaded.interruptions.source}}));
  return identity;
}

bool is_repeatable(const ReplayRun& run) {
  const auto& options = run.policy.value.options;
  const std::optional<PlannerChoice>& planner = run.what.planner;
  return run.how.planning_time == PlanningTime::fixed &&
         !planners::names_python(run.policy.value.name) &&
         !(planner && planners::names_python(planner->name.value)) &&
         std::none_of(options.begin(), options.end(),
                      [](const auto& option) { return planners::names_python(option.second); });
}

ReplayPolicy with_measured_phases(const ReplayPolicy& policy, const ir::Profile& profile) {
  ReplayPolicy out = policy;
  const planners::RecoveryEntry* entry = planners::find_policy(policy.name);
  if (entry == nullptr) return out;
  for (const planners::OptionInfo& info : entry->options()) {
    for (const ir::PhaseTime& phase : profile.phases) {
      if (phase.phase != info.name) continue;
      out.options.try_emplace(info.name, fmt::format("{}", phase.time.value));
    }
  }
  return out;
}

std::map<std::string, std::string> all_options(const ReplayPolicy& policy) {
  std::map<std::string, std::string> options = policy.options;
  if (const planners::RecoveryEntry* entry = planners::find_policy(policy.name)) {
    for (const planners::OptionInfo& info : entry->options()) {
      options.try_emplace(info.name, info.default_value);
    }
  }
  return options;
}

namespace {

/// A policy in a case: what it is told, and what it asks and comes to.
class PolicyAtWork {
 public:
  /// Keeps references. Without a policy the outcome says why.
  PolicyAtWork(const LoadedReplayCase& loaded, const ReplayPolicy& policy, std::int64_t seed,
               const models::AnswerStore* answers, const models::Topology& topology,
               sim::SimulatedTimers& timers)
      : policy_(policy), timers_(timers), seen_(std::make_shared<planners::InterruptionsSeen>()) {
    const planners::RecoveryEntry* entry = planners::find_policy(policy.name);
    ORRERY_CHECK(entry != nullptr, "policy '{}' was not checked", policy.name);
    if (answers != nullptr) {
      searches_.emplace(*answers, timers, loaded.spec.ignore_leaves, version_of_planners(policy));
    }
    const double expected = loaded.interruptions.per_second;
    planners::PolicyInput input{.cluster = loaded.cluster,
                                .topology = topology,
                                .workload = loaded.workload,
                                .job = loaded.spec.job,
                                .profile = loaded.profile,
                                .evaluator = timers.evaluator(),
                                .interruptions_per_second = expected,
                                .plan = loaded.plan,
                                .seed = static_cast<std::uint64_t>(seed),
                                .searches = &outcome_.work.searches,
                                .runtime = loaded.spec.runtime,
                                .seen = expected > 0 ? nullptr : seen_,
                                .known_searches = searches_ ? &*searches_ : nullptr};
    outcome_.simgrid = timers.simulator().effective_config();
    const Clock::time_point start = Clock::now();
    measured_ = with_measured_phases(policy, loaded.profile);
    auto made = entry->make(input, options_of(measured_));
    if (const auto* unable = std::get_if<models::Infeasible>(&made);
        unable != nullptr && loaded.plan && loaded.spec.planner) {
      outcome_.own_plan = *unable;
      input.plan.reset();
      made = entry->make(input, options_of(measured_));
    }
    outcome_.seconds.planning = seconds_since(start) - simulating(timers);
    if (auto* infeasible = std::get_if<models::Infeasible>(&made)) {
      outcome_.infeasible = std::move(*infeasible);
      return;
    }
    chosen_ = std::move(std::get<std::unique_ptr<models::RecoveryPolicy>>(made));
    timed_.emplace(*chosen_, timers, loaded.cluster, *seen_, outcome_.seconds.planning,
                   outcome_.checkpoints);
  }
  PolicyAtWork(const PolicyAtWork&) = delete;
  PolicyAtWork& operator=(const PolicyAtWork&) = delete;

  /// Null: there is none.
  const models::RecoveryPolicy* policy() const { return timed_ ? &*timed_ : nullptr; }
  ReplayOutcome outcome() && { return std::move(outcome_); }
  /// `devices`: all that the job may have, ascending.
  ReplayOutcome outcome(sim::ReplayResult result, const std::vector<DeviceId>& devices) && {
    outcome_.result = std::move(result);
    // That some were away when the trace began is no reason against the policy.
    if (outcome_.result.iterations == 0 && !outcome_.result.first_plan_problem.empty()) {
      const auto first = timed_->first_plan(devices);
      if (const auto* none = std::get_if<models::Infeasible>(&first)) {
        outcome_.infeasible = models::Infeasible{
            "first plan",
            none->witness.empty() ? none->constraint : none->constraint + ": " + none->witness};
      }
    }
    const sim::CacheCounts counts = timers_.iterations().counts();
    outcome_.work.asked = counts.asked;
    outcome_.work.simulated = counts.simulated;
    outcome_.seconds.evaluation = simulating(timers_);
    outcome_.profile_entries = timers_.iterations().used_entries();
    for (const auto& [name, value] : measured_.options) {
      if (policy_.options.contains(name)) continue;
      outcome_.profile_entries.push_back(fmt::format("profile: phase {} {} s", name, value));
    }
    return std::move(outcome_);
  }

 private:
  const ReplayPolicy& policy_;
  const sim::SimulatedTimers& timers_;
  ReplayOutcome outcome_;
  std::optional<RememberedSearches> searches_;
  std::shared_ptr<planners::InterruptionsSeen> seen_;
  ReplayPolicy measured_;
  std::unique_ptr<models::RecoveryPolicy> chosen_;
  std::optional<TimedPolicy> timed_;
};

sim::ReplayOptions options_for(const LoadedReplayCase& loaded, const traces::Trace& trace,
                               const ReplayOptions& options) {
  return {.horizon = loaded.spec.horizon ? to_nanoseconds(*loaded.spec.horizon) : trace.horizon,
          .measured_planning = options.planning_time == PlanningTime::measured,
          .spot_prices = options.prices == Prices::spot,
          .record_spans = true,
          .background_transfers = options.background_transfers == BackgroundTransfers::simulated};
}

}  // namespace

ReplayOutcome replay_once(const LoadedReplayCase& loaded, const ReplayPolicy& policy,
                          const ReplayOptions& options, const models::AnswerStore* answers,
                          const std::function<void(double)>& on_progress) {
  const traces::Trace trace = loaded.traces.trace(static_cast<std::uint64_t>(options.seed));
  const models::Topology topology(loaded.cluster, loaded.profile);
  sim::SimulatedTimers timers(loaded.cluster, topology, loaded.workload, loaded.spec.job,
                              loaded.profile, {},
                              {.ignore_leaves = loaded.spec.ignore_leaves, .answers = answers});
  PolicyAtWork work(loaded, policy, options.seed, answers, topology, timers);
  if (work.policy() == nullptr) return std::move(work).outcome();
  const sim::ReplayOptions how = options_for(loaded, trace, options);
  sim::ReplayResult result =
      sim::replay({loaded.cluster, loaded.spec.job, trace, *work.policy(), timers.iterations(),
                   timers.transfers()},
                  how, [&](Instant reached) {
                    on_progress(static_cast<double>(reached.nanoseconds) /
                                static_cast<double>(std::max<std::int64_t>(how.horizon.count, 1)));
                  });
  return std::move(work).outcome(std::move(result), all_devices(loaded.cluster));
}

std::vector<JobOutcome> replay_jobs_once(const std::vector<JobAtReplay>& jobs,
                                         const ReplayOptions& options,
                                         const models::AnswerStore* answers) {
  const LoadedReplayCase& first = *jobs.front().loaded;
  const traces::Trace trace = first.traces.trace(static_cast<std::uint64_t>(options.seed));
  const models::Topology topology(first.cluster, first.profile);
  const sim::CacheOptions cache{.answers = answers};
  const auto cluster =
      std::make_shared<sim::ClusterTimers>(first.cluster, topology, first.profile, cache, true);
  std::vector<std::vector<DeviceId>> parts;
  for (const JobAtReplay& job : jobs) parts.push_back(job.part);
  const std::vector<traces::Trace> seen = traces::split(trace, first.cluster, parts);
  std::vector<std::unique_ptr<sim::SimulatedTimers>> timers;
  std::vector<std::unique_ptr<PolicyAtWork>> works;
  std::vector<sim::ReplayInput> inputs;
  std::vector<sim::SimulatedInterference::Job> workloads;
  std::vector<std::size_t> running;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const LoadedReplayCase& loaded = *jobs[i].loaded;
    timers.push_back(std::make_unique<sim::SimulatedTimers>(
        cluster, loaded.workload, loaded.spec.job, loaded.profile, sim::IterationOptions{}, cache));
    works.push_back(std::make_unique<PolicyAtWork>(loaded, jobs[i].policy, options.seed, answers,
                                                   topology, *timers.back()));
    if (works.back()->policy() == nullptr) continue;
    running.push_back(i);
    inputs.push_back({loaded.cluster, loaded.spec.job, seen[i], *works.back()->policy(),
                      timers.back()->iterations(), timers.back()->transfers()});
    workloads.push_back({loaded.workload, loaded.spec.job, timers.back()->context()});
  }
  std::vector<JobOutcome> outcomes(jobs.size());
  std::vector<sim::JobReplay> replays;
  if (!inputs.empty()) {
    const sim::SimulatedInterference interference(cluster->simulator, first.profile,
                                                  std::move(workloads), {}, answers);
    replays = sim::replay_together(inputs, options_for(first, trace, options), interference);
  }
  for (std::size_t i = 0, k = 0; i < jobs.size(); ++i) {
    if (k < running.size() && running[k] == i) {
      outcomes[i].lost_to_others = replays[k].lost_to_others;
      outcomes[i].outcome = std::move(*works[i]).outcome(std::move(replays[k].result), parts[i]);
      ++k;
    } else {
      outcomes[i].outcome = std::move(*works[i]).outcome();
    }
  }
  return outcomes;
}

std::string in_words(const LoadedReplayCase& loaded) {
  std::map<std::string, int> count;
  for (const models::Device& device : loaded.cluster.devices) {
    ++count[loaded.cluster.gpu(device.id).name];
  }
  std::string gpus;
  for (const auto& [type, number] : count) {
    gpus += fmt::format("{}{} x {}", gpus.empty() ? "" : " + ", number, type);
  }
  const models::Job& job = loaded.spec.job;
  std::string text = fmt::format("{}{} on {} ({}), batch {} x {} tokens, trace {}",
                                 loaded.spec.name.empty() ? "" : loaded.spec.name + ": ",
                                 loaded.workload.name, loaded.cluster.name, gpus, job.global_batch,
                                 job.sequence_length, loaded.traces.name());
  if (loaded.spec.horizon) {
    text += fmt::format(", {:.4g} days", loaded.spec.horizon->value / kSecondsPerDay);
  }
  if (loaded.spec.planner) {
    const std::string& planner = loaded.spec.planner->name.value;
    text += loaded.plan
                ? fmt::format(", policies begin with {}'s plan", planner)
                : fmt::format(", policies begin with plans of their own ({} finds none: {})",
                              planner, loaded.no_plan->witness);
  }
  const ExpectedInterruptions& expected = loaded.interruptions;
  if (expected.per_second > 0) {
    text += fmt::format(", policies expect {:.4g} interruptions a day ({})",
                        expected.per_second * kSecondsPerDay, expected.source);
  }
  if (!loaded.traces.mapping().empty()) text += "; " + loaded.traces.mapping();
  for (const std::string& note : substitute_notes(loaded.cluster, job.dtype)) text += "; " + note;
  return text;
}

}  // namespace orrery::experiments
