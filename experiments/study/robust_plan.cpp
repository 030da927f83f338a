#include "experiments/study/robust_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "experiments/study/checks.h"
#include "experiments/study/exports.h"
#include "experiments/study/files.h"
#include "experiments/study/fleets.h"
#include "experiments/study/limits.h"
#include "experiments/study/race.h"
#include "experiments/study/replay_score.h"
#include "experiments/study/run_tasks.h"
#include "experiments/study/summary.h"
#include "models/base/check.h"
#include "models/check/validate.h"
#include "models/config/document.h"
#include "models/spec/library.h"
#include "models/spec/plan_yaml.h"
#include "planners/catalog.h"
#include "planners/recovery/catalog.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;
using config::Diagnostics;
using config::Value;

/// Seeds of one call: those that judge come first, so that `orrery replay --seeds N` has the same.
constexpr std::int64_t kSeedsOfCall = 100'000;
constexpr std::int64_t kFirstOfRace = 1'000;
/// Share of the budget after which checkpoint intervals join, and of how many candidates.
constexpr double kBeforeIntervals = 0.6;
constexpr std::size_t kWithIntervals = 3;
constexpr std::size_t kFewestPolicies = 3;
constexpr std::size_t kMostIntervals = 8;
constexpr Days kDefaultDays{3};  ///< Of a generated trace.
/// Simulations of the Orrery planner for a variant of a plan, beside the plan for all devices.
constexpr const char* kBudgetOption = "budget";
constexpr const char* kBudgetOfVariants = "60";
constexpr const char* kOwnPlan = "the policy's own";

/// A plan that candidates may begin with.
struct StartingPlan {
  std::string name;
  std::int64_t spare_nodes = 0;
  Seconds iteration;
  std::shared_ptr<const LoadedReplayCase> loaded;  ///< With the plan; without: the policy's own.
  bool own() const { return !loaded->plan; }
};

/// A way to ask a planner.
struct PlanVariant {
  std::string name;
  RunSpec spec;
};

struct Arm {
  std::size_t plan = 0;
  std::size_t policy = 0;
  double interval = 1;
  auto operator<=>(const Arm&) const = default;
};

/// Options of the policy that say how often it saves: those that are Young's unless set.
std::vector<std::string> interval_options(const ReplayPolicy& policy) {
  constexpr std::string_view kEnding = "interval";
  std::vector<std::string> names;
  const planners::RecoveryEntry* entry = planners::find_policy(policy.name);
  for (const planners::OptionInfo& info : entry->options()) {
    if (info.name.ends_with(kEnding) && info.default_value == "auto" &&
        !policy.options.contains(info.name)) {
      names.push_back(info.name);
    }
  }
  return names;
}

ReplayPolicy with_interval(ReplayPolicy policy, double factor) {
  if (factor == 1) return policy;
  for (const std::string& option : interval_options(policy)) {
    policy.options[option] = fmt::format("young*{}", factor);
  }
  return policy;
}

Value scalar_at(const std::string& text, const char* key) {
  return Value::scalar(text, at_setting(key));
}

/// Values by path as maps; null where there are none.
Value tree_of(const std::map<std::string, Value>& settings, const char* key,
              Diagnostics& diagnostics) {
  Value tree;
  for (const auto& [path, value] : settings) {
    if (tree.is_null()) tree = Value::map({}, at_setting(key));
    tree = config::merge(std::move(tree), path, value, diagnostics);
  }
  return tree;
}

bool is_generator(const RobustChoices& choices) {
  const std::string ending = fs::path(*choices.trace).extension().string();
  if (choices.format) return false;
  if (ending == ".yaml" || ending == ".yml" || ending == ".json") return true;
  std::error_code error;
  return !fs::is_regular_file(data_path(*choices.trace, ""), error) &&
         !is_below_data(*choices.trace) && ending.empty();
}

/// The case that all candidates are replayed in, without a plan.
ReplayCase case_of(const RobustSettings& settings, const char* trace_key, const RunSpec& spec,
                   Diagnostics& diagnostics) {
  const RobustChoices& choices = settings.choices;
  ReplayCase one;
  static_cast<TrainingInputs&>(one) = spec;
  one.plan.reset();
  if (!choices.trace || choices.trace->empty()) {
    diagnostics.add(at_setting(trace_key), "missing",
                    "a trace file, or a generator as in llama3 or spot");
    return one;
  }
  const bool generated = is_generator(choices);
  const config::Located<std::string> source{*choices.trace, at_setting(trace_key)};
  (generated ? one.trace.generator : one.trace.file) = source;
  if (choices.format) one.trace.format = *choices.format;
  if (choices.mtbf && !generated) {
    diagnostics.add(at_setting("mtbf"), "scales the rate of a generator, not of a trace file");
  }
  if (choices.repeat && generated) {
    diagnostics.add(at_setting("repeat"), "is for trace files");
  }
  one.trace.settings = tree_of(choices.settings, "set", diagnostics);
  one.ignore_leaves = choices.ignore_leaves;
  one.trace.repeat = choices.repeat;
  if (choices.days || generated) {
    one.horizon = to_seconds(to_nanoseconds(choices.days.value_or(kDefaultDays)));
  }
  if (!generated && one.horizon) one.trace.start = TraceStart::seed;
  std::map<std::string, Value> of_runtime;
  for (const auto& [name, text] : choices.runtime) {
    of_runtime[name] = scalar_at(text, "runtime");
  }
  const Value runtime = tree_of(of_runtime, "runtime", diagnostics);
  if (!runtime.is_null()) config::describe_value(runtime, one.runtime, diagnostics);
  return one;
}

std::vector<ReplayPolicy> policies_of(const RobustChoices& choices, Diagnostics& diagnostics) {
  std::vector<config::Located<ReplayPolicy>> named;
  for (const std::string& name : choices.policies) {
    ReplayPolicy policy;
    policy.name = name;
    named.push_back({policy, at_setting("policy")});
    check_policy(named.back(), diagnostics);
  }
  if (named.empty()) diagnostics.add(at_setting("policy"), "no policy is named");
  if (!diagnostics.empty()) return {};
  std::vector<ReplayPolicy> policies;
  for (const auto& each : expand_policies(named)) policies.push_back(each.value);
  const config::Position at = at_setting("policy_option");
  for (const auto& [key, value] : choices.policy_options) {
    const std::size_t dot = key.find('.');
    bool known = false;
    for (ReplayPolicy& policy : policies) {
      if (dot == std::string::npos) break;
      const std::string of = key.substr(0, dot);
      const std::string option = key.substr(dot + 1);
      if (of != "all" && of != policy.name) continue;
      if (!all_options(policy).contains(option)) continue;
      known = true;
      policy.options[option] = value;
      policy.option_positions[option] = at;
    }
    if (!known) {
      diagnostics.add(at, fmt::format("no policy of --policy has '{}'", key),
                      "POLICY.NAME=VALUE or all.NAME=VALUE; orrery list policies NAME");
    }
  }
  for (const ReplayPolicy& policy : policies) check_policy_values(policy, at, diagnostics);
  return policies;
}

/// Means and intervals of what the same candidate came to on several traces.
RobustCandidate summary_of(const StartingPlan& plan, const ReplayPolicy& policy, double interval,
                           const std::vector<ReplayScore>& scores) {
  RobustCandidate out;
  out.plan = plan.name;
  out.policy = policy.name;
  out.options = options_text(policy.options);
  out.interval = interval;
  out.spare_nodes = plan.spare_nodes;
  if (!plan.own()) out.iteration = plan.iteration;
  out.replays = static_cast<std::int64_t>(scores.size());
  std::vector<double> rates, per_dollar;
  const auto count = static_cast<double>(scores.size());
  bool priced = true;
  for (const ReplayScore& score : scores) {
    rates.push_back(score.tokens_per_second());
    per_dollar.push_back(score.tokens_per_dollar());
    priced &= score.priced;
    out.undisturbed_tokens_per_second += score.undisturbed_tokens_per_second / count;
    out.dollars_per_day += score.dollars.value / score.horizon.value * 86'400 / count;
    out.interruptions += static_cast<double>(score.interruptions) / count;
    for (const auto& [bucket, share] : score.wall) out.wall[bucket] += share / count;
  }
  double most = 0;
  for (const ReplayScore& score : scores) {
    most = std::max(most, score.undisturbed_tokens_per_second);
  }
  out.tokens_per_second = interval_of(rates, 0, most);
  if (priced) {
    out.tokens_per_dollar = interval_of(per_dollar, 0);
  } else {
    out.tokens_per_dollar = interval_of({});
    out.dollars_per_day = 0;
  }
  if (!scores.empty()) out.checkpoints = scores.front().checkpoints;
  return out;
}

/// One call: plans, candidates, race.
class RobustSearch {
 public:
  RobustSearch(const RobustSettings& settings, const Call& call, LoadedRun run,
               LoadedReplayCase base, std::vector<ReplayPolicy> policies,
               const models::AnswerStore* answers)
      : settings_(settings),
        choices_(settings.choices),
        call_(call),
        run_(std::move(run)),
        base_(std::make_shared<const LoadedReplayCase>(std::move(base))),
        policies_(std::move(policies)),
        answers_(answers),
        race_({.budget = choices_.replays, .most = base_->traces.varies() ? 64 : 1}) {}

  RobustResult run();
  /// What the fastest plan must reach undisturbed; if it does not, nothing is replayed.
  void needs(double tokens_per_second) { target_ = tokens_per_second; }

 private:
  void make_plans();
  void plan_variants(const std::vector<PlanVariant>& variants);
  void add_plan(const std::string& name, const ir::Plan& plan, Seconds iteration);
  PlanVariant variant(const std::string& planner, const std::string& what) const;
  std::int64_t seed_of(int index, bool judging) const;
  /// Scores of arms by the seed's index; remembered, infeasible ones noted.
  void replay(const std::vector<std::pair<Arm, int>>& wanted, bool judging);
  double value_of(const ReplayScore& score) const;
  void first_policies();
  void enter(const Arm& arm);
  void race_on(std::int64_t budget);
  void add_intervals();
  void report_candidates();
  void judge();
  Interval behind(const Arm& arm, const Arm& best) const;
  void note_alternatives();
  void show(const std::string& message) const;

  const RobustSettings& settings_;
  const RobustChoices& choices_;
  const Call& call_;
  LoadedRun run_;
  std::shared_ptr<const LoadedReplayCase> base_;
  std::vector<ReplayPolicy> policies_;
  const models::AnswerStore* answers_;
  std::vector<StartingPlan> plans_;  ///< Fastest undisturbed first; at the end the policies' own.
  std::set<std::string> known_plans_;
  std::vector<std::vector<std::size_t>> runs_;      ///< By policy: plans that it can run.
  std::vector<Arm> arms_;                           ///< By candidate of the race.
  std::map<Arm, std::vector<ReplayScore>> scores_;  ///< By seed of the race.
  std::map<Arm, std::vector<ReplayScore>> judged_;
  std::map<Arm, models::Infeasible> infeasible_;
  Race race_;
  double target_ = 0;
  RobustResult result_;
};

PlanVariant RobustSearch::variant(const std::string& planner, const std::string& what) const {
  PlanVariant out{what.empty() ? planner : planner + ", " + what, run_.spec};
  PlannerChoice choice;
  choice.name = {planner, at_setting("planner")};
  for (const auto& [option, value] : settings_.options) {
    if (settings_.planners.size() > 1 && !knows_option(planner, option)) continue;
    choice.options[option] = value;
    choice.option_positions[option] = at_setting("option");
  }
  if (!what.empty() && knows_option(planner, kBudgetOption)) {
    choice.options.try_emplace(kBudgetOption, kBudgetOfVariants);
  }
  out.spec.planner = std::move(choice);
  return out;
}

void RobustSearch::show(const std::string& message) const {
  Progress progress;
  progress.total = static_cast<int>(choices_.replays);
  progress.done = static_cast<int>(race_.samples());
  progress.message = message;
  progress.noun = "replays";
  call_.progress(progress);
}

void RobustSearch::add_plan(const std::string& name, const ir::Plan& plan, Seconds iteration) {
  if (!known_plans_.insert(models::plan_hash(plan)).second) return;
  std::set<NodeId> used;
  for (const DeviceId device : ir::devices_of(plan)) used.insert(run_.cluster.device(device).node);
  const std::size_t spare = run_.cluster.nodes.size() - used.size();
  auto loaded = std::make_shared<const LoadedReplayCase>(with_plan(*base_, plan));
  plans_.push_back({name, static_cast<std::int64_t>(spare), iteration, std::move(loaded)});
}

void RobustSearch::plan_variants(const std::vector<PlanVariant>& variants) {
  std::vector<RunTask> tasks;
  for (const PlanVariant& each : variants) {
    RunTask task{each.name, run_, {}};
    task.run.spec = each.spec;
    Diagnostics none;
    task.run.devices = devices_left(each.spec.hardware, run_.cluster, none);
    ORRERY_CHECK(none.empty(), "nodes of the cluster are unknown to it");
    tasks.push_back(std::move(task));
  }
  const std::vector<RunReport> reports = run_tasks(tasks, call_, answers_);
  for (const RunReport& report : reports) {
    if (!report.plan || !report.evaluation || !report.evaluation->memory.fits()) {
      const std::string why = report.infeasible ? report.infeasible->witness : "does not fit";
      result_.without_plan.push_back(fmt::format("{}: {}", report.name, why));
      continue;
    }
    add_plan(report.name, *report.plan, report.evaluation->iteration_time);
  }
}

/// The widest tensor-parallel group.
int widest_group(const ir::Plan& plan) {
  std::size_t widest = 1;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        for (const ir::Group& group : segment.groups) {
          widest = std::max(widest, group.devices.size());
        }
      }
    }
  }
  return static_cast<int>(widest);
}

void RobustSearch::make_plans() {
  std::vector<PlanVariant> first;
  for (const std::string& planner : settings_.planners) first.push_back(variant(planner, ""));
  if (!first.empty()) show(fmt::format("planning: {}", fmt::join(settings_.planners, ", ")));
  plan_variants(first);
  int widest = 1;
  for (const StartingPlan& plan : plans_) {
    widest = std::max(widest, widest_group(*plan.loaded->plan));
  }
  const std::vector<int>& zero = run_.spec.job.allowed.zero_stages;
  const bool replicas = std::find(zero.begin(), zero.end(), 0) != zero.end();
  const auto whole = [&](PlanVariant of) {
    of.spec.job.allowed.zero_stages = {0};
    return of;
  };
  std::vector<PlanVariant> more;
  for (const std::string& planner : settings_.planners) {
    if (replicas && zero.size() > 1) more.push_back(whole(variant(planner, "whole replicas")));
    if (replicas && knows_option(planner, "target") && !settings_.options.contains("target")) {
      PlanVariant equal = whole(variant(planner, "equal pipelines"));
      equal.spec.planner->options["target"] = "megatron";
      more.push_back(std::move(equal));
    }
    if (replicas && widest > 1) {
      PlanVariant small = whole(variant(planner, fmt::format("groups of {} at most", widest / 2)));
      small.spec.job.allowed.max_tensor_parallel = widest / 2;
      more.push_back(std::move(small));
    }
    for (const auto& [kind, nodes] : node_kinds(run_.cluster)) {
      for (std::int64_t spares = 1; spares <= choices_.spares; ++spares) {
        if (spares >= static_cast<std::int64_t>(run_.cluster.nodes.size())) break;
        if (spares > static_cast<std::int64_t>(nodes.size())) break;
        const auto leave_out = [&](PlanVariant of) {
          for (std::int64_t i = 0; i < spares; ++i) {
            of.spec.hardware.without.push_back(
                {run_.cluster.node(nodes[nodes.size() - 1 - static_cast<std::size_t>(i)]).name,
                 at_setting("spares")});
          }
          return of;
        };
        const std::string what = fmt::format("{} of {} spare", spares, kind);
        more.push_back(leave_out(variant(planner, what)));
        if (replicas && zero.size() > 1) {
          more.push_back(leave_out(whole(variant(planner, "whole replicas, " + what))));
        }
      }
    }
  }
  if (!call_.cancellation.requested()) {
    if (!more.empty()) show(fmt::format("planning: {} variants", more.size()));
    plan_variants(more);
  }
  for (const std::string& file : choices_.plans) {
    RunTask task{fs::path(file).stem().string(), run_, {}};
    task.run.spec.planner.reset();
    task.run.spec.plan = {file, at_setting("plan")};
    Diagnostics diagnostics;
    task.run.plan = models::load_plan(file, diagnostics);
    diagnostics.raise();
    const RunReport report = run_tasks({task}, call_, answers_).front();
    if (report.evaluation) add_plan(task.name, *task.run.plan, report.evaluation->iteration_time);
  }
  std::stable_sort(plans_.begin(), plans_.end(), [](const StartingPlan& a, const StartingPlan& b) {
    return a.iteration < b.iteration;
  });
  plans_.push_back({kOwnPlan, 0, {}, base_});
}

std::int64_t RobustSearch::seed_of(int index, bool judging) const {
  return settings_.judge.seed * kSeedsOfCall + (judging ? 0 : kFirstOfRace) + index;
}

double RobustSearch::value_of(const ReplayScore& score) const {
  return choices_.objective == RobustObjective::tokens ? score.tokens_per_second()
                                                       : score.tokens_per_dollar();
}

void RobustSearch::replay(const std::vector<std::pair<Arm, int>>& wanted, bool judging) {
  auto& known = judging ? judged_ : scores_;
  std::vector<ReplayTask> tasks;
  std::vector<Arm> of;
  for (const auto& [arm, index] : wanted) {
    const auto have = known.find(arm);
    if (have != known.end() && static_cast<int>(have->second.size()) > index) continue;
    ReplayOptions how{.prices = choices_.prices,
                      .background_transfers = choices_.background_transfers,
                      .seed = seed_of(index, judging)};
    const StartingPlan& plan = plans_[arm.plan];
    tasks.push_back({fmt::format("{} with {}", policies_[arm.policy].name, plan.name), plan.loaded,
                     with_interval(policies_[arm.policy], arm.interval), how});
    of.push_back(arm);
  }
  const std::vector<ReplayScore> scores =
      score_replays(tasks, answers_, [&](std::size_t i) { show(tasks[i].name); });
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (scores[i].infeasible) {
      infeasible_.try_emplace(of[i], *scores[i].infeasible);
    } else {
      known[of[i]].push_back(scores[i]);
    }
  }
}

/// Finds for each policy the fastest plan that it can run.
void RobustSearch::first_policies() {
  runs_.assign(policies_.size(), {});
  for (std::size_t plan = 0; plan < plans_.size(); ++plan) {
    std::vector<std::pair<Arm, int>> wanted;
    for (std::size_t policy = 0; policy < policies_.size(); ++policy) {
      if (runs_[policy].empty()) wanted.push_back({Arm{plan, policy, 1}, 0});
    }
    if (wanted.empty() || call_.cancellation.requested()) return;
    replay(wanted, false);
    for (const auto& [arm, seed] : wanted) {
      if (scores_.contains(arm)) runs_[arm.policy].push_back(plan);
    }
  }
}

void RobustSearch::enter(const Arm& arm) {
  if (std::find(arms_.begin(), arms_.end(), arm) != arms_.end()) return;
  if (infeasible_.contains(arm)) return;
  race_.add();
  arms_.push_back(arm);
}

void RobustSearch::race_on(std::int64_t budget) {
  race_.set_budget(budget);
  while (!call_.cancellation.requested()) {
    const std::vector<Race::Sample> due = race_.next();
    if (due.empty()) return;
    std::vector<std::pair<Arm, int>> wanted;
    for (const Race::Sample& sample : due) {
      wanted.push_back({arms_[sample.candidate], sample.seed});
    }
    replay(wanted, false);
    for (const Race::Sample& sample : due) {
      const auto known = scores_.find(arms_[sample.candidate]);
      const bool there =
          known != scores_.end() && static_cast<int>(known->second.size()) > sample.seed;
      race_.take(sample.candidate,
                 there ? std::optional(value_of(known->second[sample.seed])) : std::nullopt);
    }
    const std::vector<std::size_t> order = race_.ranking();
    if (order.empty()) continue;
    const Arm& best = arms_[order.front()];
    show(fmt::format("best so far: {}, {}", policies_[best.policy].name, plans_[best.plan].name));
  }
}

void RobustSearch::add_intervals() {
  const std::vector<std::size_t> order = race_.ranking();
  for (std::size_t i = 0; i < order.size() && i < kWithIntervals; ++i) {
    const Arm arm = arms_[order[i]];
    // Nothing to vary: no interval, or no checkpoints that take one.
    if (interval_options(policies_[arm.policy]).empty()) continue;
    if (scores_.at(arm).front().checkpoints.empty()) continue;
    for (const double factor : choices_.intervals) {
      Arm other = arm;
      other.interval = factor;
      enter(other);
    }
  }
}

Interval RobustSearch::behind(const Arm& arm, const Arm& best) const {
  const std::vector<ReplayScore>& mine = scores_.at(arm);
  const std::vector<ReplayScore>& theirs = scores_.at(best);
  std::vector<double> shares;
  for (std::size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
    shares.push_back(1 - value_of(mine[i]) / value_of(theirs[i]));
  }
  return interval_of(shares);
}

void RobustSearch::report_candidates() {
  for (const std::size_t candidate : race_.ranking()) {
    const Arm& arm = arms_[candidate];
    const auto scores = scores_.find(arm);
    if (scores == scores_.end()) continue;
    RobustCandidate out =
        summary_of(plans_[arm.plan], with_interval(policies_[arm.policy], arm.interval),
                   arm.interval, scores->second);
    out.behind = behind(arm, arms_[race_.ranking().front()]);
    result_.candidates.push_back(std::move(out));
  }
  std::set<std::size_t> unable;
  for (const auto& [arm, why] : infeasible_) {
    if (!runs_[arm.policy].empty() || !unable.insert(arm.policy).second) continue;
    result_.unable.push_back(
        fmt::format("{}: {} ({})", policies_[arm.policy].name, why.witness, why.constraint));
  }
}

void RobustSearch::note_alternatives() {
  const std::vector<std::size_t> order = race_.ranking();
  if (order.empty()) return;
  const Arm best = arms_[order.front()];
  const std::int64_t spares = plans_[best.plan].spare_nodes;
  std::set<std::pair<std::string, std::string>> seen;
  for (const std::size_t candidate : order) {
    const Arm& arm = arms_[candidate];
    if (arm == best || !scores_.contains(arm)) continue;
    const StartingPlan& plan = plans_[arm.plan];
    const auto add = [&](const std::string& what, const std::string& value) {
      if (!seen.insert({what, value}).second) return;
      result_.alternatives.push_back(
          {what, value, behind(arm, best), static_cast<std::int64_t>(scores_.at(arm).size())});
    };
    if (arm.policy != best.policy) add("policy", policies_[arm.policy].name);
    if (plan.spare_nodes != spares && !plan.own()) {
      add("spares", fmt::format("{}", plan.spare_nodes));
    }
    if (arm.plan == best.plan && arm.policy == best.policy) {
      add("interval", fmt::format("{} x Young's", arm.interval));
    }
    if (arm.policy == best.policy && arm.plan != best.plan) add("plan", plan.name);
  }
  std::stable_sort(result_.alternatives.begin(), result_.alternatives.end(),
                   [](const auto& a, const auto& b) { return a.what < b.what; });
}

void RobustSearch::judge() {
  const std::vector<std::size_t> order = race_.ranking();
  if (order.empty()) return;
  const Arm best = arms_[order.front()];
  std::optional<Arm> second, common;
  for (std::size_t i = 1; i < order.size() && !second; ++i) second = arms_[order[i]];
  // The plan that is fastest undisturbed, of those that some policy can run; then its best policy,
  // with the checkpoints that it takes by itself.
  for (const std::size_t candidate : order) {
    const Arm& arm = arms_[candidate];
    if (plans_[arm.plan].own() || arm.interval != 1) continue;
    if (!common || arm.plan < common->plan) common = arm;
  }
  std::vector<Arm> judged = {best};
  for (const std::optional<Arm>& each : {second, common}) {
    if (each && std::find(judged.begin(), judged.end(), *each) == judged.end()) {
      judged.push_back(*each);
    }
  }
  const int seeds = base_->traces.varies() ? static_cast<int>(choices_.seeds) : 1;
  for (int seed = 0; seed < seeds && !call_.cancellation.requested(); ++seed) {
    std::vector<std::pair<Arm, int>> wanted;
    for (const Arm& arm : judged) wanted.push_back({arm, seed});
    replay(wanted, true);
    result_.judging_replays += static_cast<std::int64_t>(judged.size());
  }
  const auto summary = [&](const Arm& arm) -> std::optional<RobustCandidate> {
    if (!judged_.contains(arm)) return std::nullopt;
    return summary_of(plans_[arm.plan], with_interval(policies_[arm.policy], arm.interval),
                      arm.interval, judged_.at(arm));
  };
  const auto over = [&](const Arm& arm) -> std::optional<Interval> {
    if (!judged_.contains(arm) || !judged_.contains(best)) return std::nullopt;
    std::vector<double> shares;
    for (std::size_t i = 0; i < std::min(judged_[arm].size(), judged_[best].size()); ++i) {
      shares.push_back(value_of(judged_[best][i]) / value_of(judged_[arm][i]) - 1);
    }
    return interval_of(shares);
  };
  result_.best = summary(best);
  if (second) {
    result_.runner_up = summary(*second);
    result_.lead = over(*second);
  }
  if (common) {
    result_.plan_then_policy = summary(*common);
    result_.gain = over(*common);
  }
  result_.plan = plans_[best.plan].loaded->plan;
}

RobustResult RobustSearch::run() {
  result_.cluster = run_.cluster.name;
  result_.model = run_.workload.name;
  result_.trace = in_words(*base_);
  result_.objective = choices_.objective;
  try {
    make_plans();
    const models::Job& job = run_.spec.job;
    const double tokens =
        static_cast<double>(job.global_batch) * static_cast<double>(job.sequence_length);
    if (target_ > 0 &&
        (plans_.front().own() || tokens / plans_.front().iteration.value < target_)) {
      return std::move(result_);
    }
    first_policies();
    std::vector<Arm> first;
    for (std::size_t policy = 0; policy < policies_.size(); ++policy) {
      if (!runs_[policy].empty()) first.push_back({runs_[policy].front(), policy, 1});
    }
    std::stable_sort(first.begin(), first.end(), [&](const Arm& a, const Arm& b) {
      return value_of(scores_.at(a).front()) > value_of(scores_.at(b).front());
    });
    for (const Arm& arm : first) enter(arm);
    const std::size_t keep = std::max(kFewestPolicies, (first.size() + 1) / 2);
    const auto most = static_cast<std::size_t>(choices_.replays / 2);
    for (std::size_t plan = 0; plan + 1 < plans_.size(); ++plan) {
      for (std::size_t i = 0; i < first.size() && i < keep && arms_.size() < most; ++i) {
        if (!plans_[first[i].plan].own()) enter({plan, first[i].policy, 1});
      }
    }
    race_on(static_cast<std::int64_t>(kBeforeIntervals * static_cast<double>(choices_.replays)));
    add_intervals();
    race_on(choices_.replays);
  } catch (const std::runtime_error&) {
    if (!call_.cancellation.requested()) throw;  // A child that Ctrl-C ended.
  }
  result_.settled = race_.settled();
  result_.replays = race_.samples();
  result_.interrupted = call_.cancellation.requested();
  report_candidates();
  note_alternatives();
  if (!result_.interrupted) {
    try {
      judge();
    } catch (const std::runtime_error&) {
      if (!call_.cancellation.requested()) throw;
    }
  }
  result_.interrupted = call_.cancellation.requested();
  if (!result_.best && !result_.candidates.empty()) {
    result_.best = result_.candidates.front();
    result_.plan = plans_[arms_[race_.ranking().front()].plan].loaded->plan;
  }
  if (!result_.candidates.empty()) {
    result_.horizon = scores_.begin()->second.front().horizon;
  }
  return std::move(result_);
}

/// Sets the generator's rate of failures so that the job is interrupted as often as `mtbf` says.
void scale_failures(ReplayCase& one, const models::Cluster& cluster, Seconds mtbf,
                    Diagnostics& diagnostics) {
  constexpr const char* kRate = "failures.rate";
  const auto with_rate = [&](double rate) {
    ReplayCase out = one;
    Value& settings = out.trace.settings;
    if (settings.is_null()) settings = Value::map({}, at_setting("mtbf"));
    settings = config::merge(std::move(settings), kRate, scalar_at(fmt::format("{}", rate), "mtbf"),
                             diagnostics);
    return out;
  };
  const auto per_second = [&](double rate) {
    return TraceSource(with_rate(rate), "", cluster, diagnostics).interruptions(1).per_second;
  };
  const double once = per_second(1);
  const double of_failures = per_second(2) - once;
  if (!diagnostics.empty()) return;
  const double rate = (1 / mtbf.value - (once - of_failures)) / of_failures;
  if (!(of_failures > 0)) {
    diagnostics.add(at_setting("mtbf"),
                    "the generator draws no failures whose rate it could scale");
  } else if (!(rate > 0)) {
    diagnostics.add(at_setting("mtbf"),
                    fmt::format("without failures spot nodes alone interrupt the job each {:.3g} h",
                                1 / (once - of_failures) / 3600));
  } else {
    one = with_rate(rate);
  }
}

/// Cheapest first; empty unless something is to be rented.
std::vector<Fleet> offered_fleets(const RobustSettings& settings, const LoadedReplayCase& base,
                                  Diagnostics& diagnostics) {
  const RobustChoices& choices = settings.choices;
  const config::Position at = at_setting("rent");
  if (choices.rent.has_value() != choices.target_rate.has_value()) {
    diagnostics.add(at_setting(choices.rent ? "target_rate" : "rent"), "missing",
                    "--rent \"8..64 of A100, H100\" --target-rate 200000");
    return {};
  }
  if (!choices.rent) return {};
  if (base.spec.trace.file) {
    diagnostics.add(at, "needs a generator: a trace file is of one cluster");
  }
  if (!choices.plans.empty()) diagnostics.add(at_setting("plan"), "does not go with --rent");
  const RentRange range = parse_rent(*choices.rent, base.cluster, at, diagnostics);
  if (!diagnostics.empty()) return {};
  return fleets(range, base.cluster, choices.prices == Prices::spot, at, diagnostics);
}

/// What a search on each fleet is made of.
struct Offer {
  const RobustSettings& settings;
  const Call& call;
  const LoadedRun& run;
  const LoadedReplayCase& base;
  const std::vector<ReplayPolicy>& policies;
  const models::AnswerStore* answers;
};

/// The cheapest fleet that reaches the rate: those that cannot by the lower bound on an iteration
/// are passed over, the others are planned for and replayed, cheapest first.
RobustResult rented(
    const Offer& offer, const std::vector<Fleet>& offered,
    const std::function<RobustResult(const models::Cluster&, RobustResult)>& chosen_for) {
  constexpr double kHour = 3600;
  const double target = *offer.settings.choices.target_rate;
  std::vector<RobustFleet> seen;
  RobustResult last;
  for (const Fleet& fleet : offered) {
    if (offer.call.cancellation.requested()) break;
    LoadedRun run = offer.run;
    run.cluster = only_nodes(offer.run.cluster, fleet.nodes);
    run.devices.clear();
    for (const models::Device& device : run.cluster.devices) run.devices.push_back(device.id);
    RobustFleet row{
        fleet.name,   fleet.gpus, fleet.price.value * kHour, most_tokens_per_second(run),
        std::nullopt, false};
    if (row.most_tokens_per_second < target) {
      seen.push_back(row);
      continue;
    }
    LoadedReplayCase base = offer.base;
    base.cluster = run.cluster;
    base.hashes.cluster = run.cluster.hash;
    Diagnostics problems;
    base.traces = TraceSource(base.spec, "", base.cluster, problems);
    problems.raise();
    base.interruptions = base.traces.interruptions(1);
    const models::Cluster cluster = run.cluster;
    RobustSearch search(offer.settings, offer.call, std::move(run), std::move(base), offer.policies,
                        offer.answers);
    search.needs(target);
    last = search.run();
    row.tried = true;
    if (last.best) row.tokens_per_second = last.best->tokens_per_second;
    const bool reached = last.best && last.best->tokens_per_second.mean >= target;
    seen.push_back(row);
    if (!reached || last.interrupted) continue;
    last.fleet = row;
    last = chosen_for(cluster, std::move(last));
    break;
  }
  if (!last.fleet) {  // What was found is of a fleet that falls short.
    last.best.reset();
    last.plan.reset();
  }
  last.cluster = offer.base.cluster.name;
  last.model = offer.base.workload.name;
  last.fleets = std::move(seen);
  last.interrupted = offer.call.cancellation.requested();
  return last;
}

/// Settings that judge plans and that replays do not have.
void refuse_judging(const RobustSettings& settings, Diagnostics& diagnostics) {
  for (const std::string& key : settings.judge.given) {
    if (key == "seed") continue;
    diagnostics.add(at_setting(key), "does not go with traces",
                    "replays simulate as `orrery replay` does");
  }
  if (!settings.judge.hardware.without.empty()) {
    diagnostics.add(at_setting("without"), "does not go with traces",
                    "a node that is never used is a spare; leave it out of the cluster file");
  }
}

}  // namespace

std::vector<std::pair<RobustObjective, const char*>> enum_names(RobustObjective) {
  return {{RobustObjective::tokens, "tokens"},
          {RobustObjective::tokens_per_dollar, "tokens_per_dollar"}};
}

void describe(config::Visitor& v, RobustChoices& choices) {
  v.optional(choices.trace_key, choices.trace,
             "choose plan, recovery policy, checkpoint interval and spare nodes together, for what "
             "happens to the cluster: a generator (llama3, spot, or a YAML file with settings), or "
             "a trace file");
  v.optional("format", choices.format, "of a trace file of others (orrery trace import --help)");
  v.optional("set", choices.settings,
             "NAME=VALUE: setting of the generator or of the format; may be repeated");
  v.optional("days", choices.days,
             "how long each trace is; default: 3, of a file all of it. Shorter than a file: each "
             "seed begins at another time in it");
  v.optional("repeat", choices.repeat, "play a trace file again where it ends");
  v.optional("ignore_leaves", choices.ignore_leaves,
             "nodes of different leaves are simulated as interchangeable: for large clusters");
  v.optional(
      "mtbf", choices.mtbf,
      "mean time between interruptions of the job, as in \"3 h\": scales the failures of the "
      "generator");
  v.optional("policy", choices.policies,
             "recovery policies to choose from: names, comma-separated, or all (default)",
             {.commas = true});
  v.optional("policy_option", choices.policy_options,
             "POLICY.NAME=VALUE: option of a policy, or of all that have it (all.NAME=VALUE); may "
             "be repeated");
  v.optional("objective", choices.objective,
             "tokens (default) or tokens_per_dollar; of all nodes that are there");
  v.optional("spares", choices.spares,
             "most nodes of a kind that plans leave out as spares; default: 2");
  v.optional("intervals", choices.intervals,
             "checkpoint intervals to try, times Young's; default: 0.5,1,2", {.commas = true});
  v.optional("plan", choices.plans, "plan file to try, too; may be repeated");
  v.optional("replays", choices.replays, "most replays that choose; default: 150");
  v.optional("seeds", choices.seeds,
             "other traces that judge what was chosen; default: 5. `orrery replay --seeds` draws "
             "the same");
  v.optional("rent", choices.rent,
             "\"8..64 of A100, H100\": choose among the nodes of the cluster, which are then what "
             "is on offer, the fewest dollars per hour with so many GPUs of these types that reach "
             "--target-rate on the traces");
  v.optional("target_rate", choices.target_rate,
             "tokens per second, failures included; for --rent");
  v.optional("prices", choices.prices, "on_demand (default) or spot, where the trace names none");
  v.optional("background_transfers", choices.background_transfers,
             "what checkpoints copy during training: simulated (default) or ignored");
  v.optional("runtime", choices.runtime,
             "NAME=VALUE: what it takes to notice, to start, to connect and to plan (orrery schema "
             "replay --reference); may be repeated");
  v.between("spares", choices.spares, std::int64_t{0}, std::int64_t{64});
  v.between("replays", choices.replays, std::int64_t{1}, std::int64_t{1'000'000});
  v.between("seeds", choices.seeds, std::int64_t{1}, kFirstOfRace);
  if (choices.target_rate) v.positive("target_rate", *choices.target_rate);
  for (const double factor : choices.intervals) {
    if (v.reading() && !(factor > 0 && std::isfinite(factor))) {
      v.problem("intervals", "must be positive");
    }
  }
  if (v.reading() && (choices.intervals.empty() || choices.intervals.size() > kMostIntervals)) {
    v.problem("intervals", fmt::format("one to {} factors", kMostIntervals));
  }
}

void describe(config::Visitor& v, RobustCandidate& candidate) {
  v.title("Candidate");
  v.required("plan", candidate.plan, "who made it, and how");
  v.required("policy", candidate.policy, "");
  v.required("options", candidate.options, "of the policy");
  v.required("interval", candidate.interval, "between checkpoints, times Young's");
  v.required("spare_nodes", candidate.spare_nodes, "that the plan leaves out");
  v.optional("iteration_seconds", candidate.iteration, "of the plan, undisturbed");
  v.required("replays", candidate.replays, "traces that the figures are of");
  v.required("tokens_per_second", candidate.tokens_per_second, "");
  v.required("tokens_per_dollar", candidate.tokens_per_dollar, "");
  v.required("behind", candidate.behind, "the best, as a share of it, trace by trace");
  v.required("undisturbed_tokens_per_second", candidate.undisturbed_tokens_per_second, "");
  v.required("dollars_per_day", candidate.dollars_per_day, "0 without prices");
  v.required("interruptions", candidate.interruptions, "of a trace");
  v.required("wall", candidate.wall, "shares of the time");
  v.required("checkpoints", candidate.checkpoints, "");
}

void describe(config::Visitor& v, RobustAlternative& alternative) {
  v.title("Alternative");
  v.required("what", alternative.what, "policy, plan, spares or interval");
  v.required("value", alternative.value, "");
  v.required("behind", alternative.behind, "the best, as a share of it, trace by trace");
  v.required("replays", alternative.replays, "");
}

void describe(config::Visitor& v, RobustFleet& fleet) {
  v.title("Fleet");
  v.required("nodes", fleet.nodes, "");
  v.required("gpus", fleet.gpus, "");
  v.required("dollars_per_hour", fleet.dollars_per_hour, "of all its GPUs");
  v.required("most_tokens_per_second", fleet.most_tokens_per_second, "no plan trains more: proven");
  v.optional("tokens_per_second", fleet.tokens_per_second, "of the best, on traces");
  v.required("tried", fleet.tried, "planned for; false: it cannot reach the target");
}

void describe(config::Visitor& v, RobustResult& result) {
  v.title("Robust plan");
  v.required("cluster", result.cluster, "its name");
  v.required("model", result.model, "its name");
  v.required("trace", result.trace, "what was replayed, in words");
  v.required("objective", result.objective, "");
  v.required("horizon", result.horizon, "of a trace");
  v.optional("best", result.best, "on traces that did not choose it");
  v.optional("runner_up", result.runner_up, "");
  v.optional("plan_then_policy", result.plan_then_policy,
             "the plan that is fastest undisturbed, then the best policy for it");
  v.optional("lead", result.lead, "of the best over the second, trace by trace");
  v.optional("gain", result.gain, "of the best over plan-then-policy, trace by trace");
  v.required("settled", result.settled, "the race told the best from all others that were left");
  v.required("alternatives", result.alternatives, "what another choice of one thing costs");
  v.required("candidates", result.candidates, "best first, on the traces of the race");
  v.required("unable", result.unable, "policies that cannot run");
  v.required("without_plan", result.without_plan, "planners that found no plan");
  v.required("replays", result.replays, "that chose");
  v.required("judging_replays", result.judging_replays, "that judged");
  v.optional("fleet", result.fleet, "with --rent: the cheapest that reaches the target");
  v.required("fleets", result.fleets, "with --rent: cheapest first, until one reached it");
}

void describe(config::Visitor& v, RobustSettings& settings) {
  v.section("Failures and choices");
  describe(v, settings.choices);
  v.section("Planning");
  v.optional("planner", settings.planners,
             "planners of the candidate plans, comma-separated; default: orrery", {.commas = true});
  v.optional("option", settings.options,
             "NAME=VALUE: knob of the planners that have it; may be repeated", {.letter = 'o'});
  v.optional("work_budget", settings.work_budget, "most work of each search; default: no limit");
  v.optional("output", settings.output, "write the chosen plan to this YAML file");
  describe(v, settings.job);
  describe(v, settings.judge);
  if (settings.work_budget) v.at_least("work_budget", *settings.work_budget, std::int64_t{1});
}

int exit_status(const RobustResult& result) {
  if (result.interrupted) return kInterrupted;
  return result.best ? 0 : 1;
}

RobustResult robust_plan(const RobustSettings& settings, const Call& call,
                         config::Diagnostics problems) {
  const char* trace_key = settings.choices.trace_key;
  const models::Library library = open_library(problems);
  RunSpec spec = make_spec(settings.job, settings.judge, {}, problems);
  spec.work_budget = settings.work_budget.value_or(0);
  check_names(spec, library, problems);
  refuse_judging(settings, problems);
  const std::vector<OutputFile> outputs = {{"output", settings.output}};
  check_outputs(outputs, input_files(settings.job), problems);
  std::vector<ReplayPolicy> policies = policies_of(settings.choices, problems);
  if (settings.planners.empty() && settings.choices.plans.empty()) {
    problems.add(at_setting("planner"), "no planner is named, and no plan file",
                 "orrery list planners");
  }
  for (const std::string& name : settings.planners) {
    PlannerChoice choice;
    choice.name = {name, at_setting("planner")};
    check_planner(choice, problems);
  }
  ReplayCase one = case_of(settings, trace_key, spec, problems);
  problems.raise();
  for (const std::string& name : settings.planners) {
    PlannerChoice choice;
    choice.name = {name, at_setting("planner")};
    for (const auto& [option, value] : settings.options) {
      const bool known = std::any_of(settings.planners.begin(), settings.planners.end(),
                                     [&](const auto& each) { return knows_option(each, option); });
      if (known && !knows_option(name, option)) continue;
      choice.options[option] = value;
      choice.option_positions[option] = at_setting("option");
    }
    check_planner(choice, problems);
  }
  if (settings.planners.empty()) {
    spec.plan = {settings.choices.plans.front(), at_setting("plan")};
  } else {
    spec.planner = PlannerChoice{{settings.planners.front(), at_setting("planner")}, {}, {}};
  }
  LoadedRun run = load_run(spec, "", library, problems);
  run.plan.reset();
  problems.raise();
  if (settings.choices.mtbf) scale_failures(one, run.cluster, *settings.choices.mtbf, problems);
  LoadedReplayCase base = load_replay_case(one, "", library, problems);
  problems.raise();
  if (!base.traces.absent().empty()) {
    problems.add(at_setting(trace_key), fmt::format("no such file '{}'", base.traces.absent()),
                 "set ORRERY_DATA to the folder with the traces of others");
  }
  apply(settings.judge.hardware, base.cluster, problems);
  base.hashes.cluster = base.cluster.hash;
  if (settings.choices.objective == RobustObjective::tokens_per_dollar) {
    for (const models::GpuType& gpu : base.cluster.gpu_types) {
      const bool spot = settings.choices.prices == Prices::spot;
      if (gpu.price || (spot && gpu.spot_price)) continue;
      problems.add(at_setting("objective"), fmt::format("GPU {} has no price", gpu.name),
                   fmt::format("--price {}=2.50", gpu.name));
    }
  }
  for (const std::string& file : settings.choices.plans) {
    RunSpec of_plan = spec;
    of_plan.planner.reset();
    of_plan.plan = {file, at_setting("plan")};
    load_run(of_plan, "", library, problems);
  }
  problems.raise();
  const std::vector<Fleet> offered = offered_fleets(settings, base, problems);
  problems.raise();
  probe_outputs(outputs);
  for (const std::string& note : substitute_notes(run.cluster, run.spec.job.dtype)) {
    call.note(note);
  }
  const Cancellation::Listener listener(call.cancellation);
  const auto answers = settings.judge.cache.open(call.on_note);
  const auto chosen_for = [&](const models::Cluster& cluster, RobustResult result) {
    if (settings.output && result.plan) {
      ir::Plan plan = *result.plan;
      plan.cluster_hash = models::layout_hash(cluster);
      write_file(*settings.output, models::dump_plan(plan));
    }
    return result;
  };
  RobustResult result;
  if (settings.choices.rent) {
    result = rented({settings, call, run, base, policies, answers.get()}, offered, chosen_for);
  } else {
    const models::Cluster cluster = run.cluster;
    RobustSearch search(settings, call, std::move(run), std::move(base), std::move(policies),
                        answers.get());
    result = chosen_for(cluster, search.run());
  }
  if (result.interrupted) call.note("interrupted: this is the best so far");
  return result;
}

}  // namespace orrery::experiments
