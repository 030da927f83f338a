#include "experiments/study/robust_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "experiments/study/fleets.h"
#include "experiments/study/race.h"
#include "experiments/study/replay_score.h"
#include "experiments/study/run_tasks.h"
#include "experiments/study/summary.h"
#include "models/base/check.h"
#include "models/check/validate.h"
#include "models/spec/plan_yaml.h"
#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/replan.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;
using config::Diagnostics;

/// Seeds of one call: those that judge come first, so that `orrery replay --seeds N` has the same.
constexpr std::int64_t kSeedsOfCall = 100'000;
constexpr std::int64_t kFirstOfRace = kMostJudgingSeeds;
/// Share of the budget after which checkpoint intervals join, and of how many candidates.
constexpr double kBeforeIntervals = 0.6;
constexpr std::size_t kWithIntervals = 3;
constexpr std::size_t kFewestPolicies = 3;
/// Simulations of the Orrery planner for a variant of a plan, beside the plan for all devices.
constexpr const char* kBudgetOption = "budget";
constexpr const char* kBudgetOfVariants = "60";
/// And for each new plan of a policy.
constexpr const char* kBudgetOfNewPlans = "20";
constexpr const char* kPlannerOption = "planner";
constexpr const char* kOptionsOfPlanner = "planner_options";
/// Steps of the interval before the race, and the longest that one trace may choose.
constexpr double kIntervalStep = 4;
constexpr double kMostProbed = 16;
/// What a longer or shorter interval must gain to be followed: a rare loss that needs a checkpoint
/// may just not be among the traces.
constexpr double kWorthFollowing = 0.002;
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

/// A policy, and who makes its new plans.
struct CandidatePolicy {
  ReplayPolicy policy;
  std::string new_plans_by;  ///< Empty: its own planner.
  std::string shown() const { return policy_in_words(policy.name, new_plans_by); }
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

/// Its default; none: the policy has no such option.
std::optional<std::string> default_of(const ReplayPolicy& policy, std::string_view option) {
  for (const planners::OptionInfo& info : planners::find_policy(policy.name)->options()) {
    if (info.name == option) return info.default_value;
  }
  return std::nullopt;
}

/// Each policy, and where it asks a planner that the user leaves open, with each of these.
std::vector<CandidatePolicy> with_planners(const std::vector<ReplayPolicy>& policies,
                                           const RobustSettings& settings) {
  std::vector<CandidatePolicy> all;
  for (const ReplayPolicy& policy : policies) {
    all.push_back({policy, ""});
    const std::optional<std::string> own = default_of(policy, kPlannerOption);
    const bool open =
        own && default_of(policy, kOptionsOfPlanner) && !policy.options.contains(kPlannerOption);
    if (!open || settings.choices.new_plans == NewPlans::own) continue;
    for (const std::string& planner : settings.planners) {
      if (planner == *own) continue;
      CandidatePolicy other{policy, planner};
      std::map<std::string, std::string> options;
      for (const auto& [option, value] : settings.options) {
        if (knows_option(planner, option)) options[option] = value;
      }
      if (knows_option(planner, kBudgetOption)) {
        options.try_emplace(kBudgetOption, kBudgetOfNewPlans);
      }
      other.policy.options[kPlannerOption] = planner;
      other.policy.options[kOptionsOfPlanner] =
          to_scalar(planners::PlannerOptions{{options.begin(), options.end()}});
      const auto& given = other.policy.options;
      // Some take none but their own.
      if (!planners::find_policy(policy.name)->check({given.begin(), given.end()}).empty())
        continue;
      all.push_back(std::move(other));
    }
  }
  return all;
}

ReplayPolicy with_interval(ReplayPolicy policy, double factor) {
  if (factor == 1) return policy;
  for (const std::string& option : interval_options(policy)) {
    policy.options[option] = fmt::format("young*{}", factor);
  }
  return policy;
}

/// What a candidate came to on traces, by the indices of their seeds.
using Scores = std::map<int, ReplayScore>;

/// Checkpoints that it takes: of the first trace on which it trains.
const std::vector<std::string>& checkpoints_of(const Scores& scores) {
  const auto first = std::find_if(scores.begin(), scores.end(),
                                  [](const auto& one) { return !one.second.checkpoints.empty(); });
  return (first == scores.end() ? scores.begin() : first)->second.checkpoints;
}

/// Means and intervals of what the same candidate came to on several traces.
RobustCandidate summary_of(const StartingPlan& plan, const CandidatePolicy& policy, double interval,
                           const Scores& scores) {
  RobustCandidate out;
  out.plan = plan.name;
  out.policy = policy.policy.name;
  out.new_plans_by = policy.new_plans_by;
  out.options = options_text(with_interval(policy.policy, interval).options);
  out.interval = interval;
  out.spare_nodes = plan.spare_nodes;
  if (!plan.own()) out.iteration = plan.iteration;
  out.replays = static_cast<std::int64_t>(scores.size());
  std::vector<double> rates, per_dollar;
  const auto count = static_cast<double>(scores.size());
  bool priced = true;
  const auto trained = std::count_if(scores.begin(), scores.end(), [](const auto& one) {
    return one.second.undisturbed_tokens_per_second > 0;
  });
  double most = 0;
  for (const auto& [seed, score] : scores) {
    rates.push_back(score.tokens_per_second());
    per_dollar.push_back(score.tokens_per_dollar());
    priced &= score.priced;
    most = std::max(most, score.undisturbed_tokens_per_second);
    if (score.undisturbed_tokens_per_second > 0) {
      out.undisturbed_tokens_per_second +=
          score.undisturbed_tokens_per_second / static_cast<double>(trained);
    }
    out.dollars_per_day += score.dollars.value / score.horizon.value * 86'400 / count;
    out.interruptions += static_cast<double>(score.interruptions) / count;
    for (const auto& [bucket, share] : score.wall) out.wall[bucket] += share / count;
  }
  out.tokens_per_second = interval_of(rates, 0, most);
  if (priced) {
    out.tokens_per_dollar = interval_of(per_dollar, 0);
  } else {
    out.tokens_per_dollar = interval_of({});
    out.dollars_per_day = 0;
  }
  if (!scores.empty()) out.checkpoints = checkpoints_of(scores);
  return out;
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

/// One call: plans, candidates, race.
class RobustSearch {
 public:
  RobustSearch(RobustInputs inputs, double target)
      : settings_(inputs.settings),
        choices_(settings_.choices),
        call_(inputs.call),
        run_(std::move(inputs.run)),
        base_(std::make_shared<const LoadedReplayCase>(std::move(inputs.base))),
        policies_(with_planners(inputs.policies, settings_)),
        answers_(inputs.answers),
        race_({.budget = choices_.replays, .most = base_->traces.varies() ? 64 : 1}),
        target_(target) {}

  RobustResult run();

 private:
  void make_plans();
  void plan_variants(const std::vector<PlanVariant>& variants);
  void add_plan(const std::string& name, const ir::Plan& plan, Seconds iteration);
  PlanVariant variant(const std::string& planner, const std::string& what) const;
  std::int64_t seed_of(int index, bool judging) const;
  /// Scores of arms; remembered, infeasible ones noted.
  void replay(const std::vector<std::pair<Arm, int>>& wanted, bool judging);
  double value_of(const ReplayScore& score) const;
  void first_policies();
  double best_interval(const Arm& first);
  bool has_twin(const Arm& arm) const;
  std::int64_t race_budget() const;
  bool enter(const Arm& arm);
  void race_on(std::int64_t budget);
  std::size_t add_intervals();
  bool add_further_interval();
  void report_candidates();
  void judge();
  /// share_above() of the objective, on the traces of both.
  std::vector<double> shares_above(const Scores& mine, const Scores& others) const;
  Interval behind(const Arm& arm, const Arm& best) const;
  void note_alternatives();
  void show(const std::string& message) const;

  const RobustSettings& settings_;
  const RobustChoices& choices_;
  const Call& call_;
  LoadedRun run_;
  std::shared_ptr<const LoadedReplayCase> base_;
  std::vector<CandidatePolicy> policies_;
  const models::AnswerStore* answers_;
  std::vector<StartingPlan> plans_;  ///< Fastest undisturbed first; at the end the policies' own.
  std::set<std::string> known_plans_;
  std::vector<std::vector<std::size_t>> runs_;  ///< By policy: plans that it can run, first first.
  std::set<Arm> probed_;                        ///< Replayed before the race.
  std::vector<Arm> arms_;                       ///< By candidate of the race.
  std::map<Arm, Scores> scores_;                ///< Of the race; with the first trace each.
  std::map<Arm, Scores> judged_;
  std::map<Arm, models::Infeasible> infeasible_;
  Race race_;
  double target_;  ///< Tokens per second that the fastest plan must reach.
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
      const std::int64_t most =
          std::min({choices_.spares, static_cast<std::int64_t>(nodes.size()),
                    static_cast<std::int64_t>(run_.cluster.nodes.size()) - 1});
      // 1, 2, 4, ... and the most: how many hardly matters to a plan, and each is planned for.
      for (std::int64_t spares = 1; spares <= most;
           spares = spares < most ? std::min(2 * spares, most) : most + 1) {
        const auto leave_out = [&, &nodes = nodes](PlanVariant of) {
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
  std::vector<std::pair<Arm, int>> of;
  for (const auto& [arm, index] : wanted) {
    const auto have = known.find(arm);
    if (have != known.end() && have->second.contains(index)) continue;
    ReplayOptions how{.prices = choices_.prices,
                      .background_transfers = choices_.background_transfers,
                      .seed = seed_of(index, judging)};
    const StartingPlan& plan = plans_[arm.plan];
    const CandidatePolicy& policy = policies_[arm.policy];
    tasks.push_back({fmt::format("{} with {}", policy.shown(), plan.name), plan.loaded,
                     with_interval(policy.policy, arm.interval), how});
    of.emplace_back(arm, index);
  }
  const std::vector<ReplayScore> scores =
      score_replays(tasks, answers_, [&](std::size_t i) { show(tasks[i].name); });
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto& [arm, index] = of[i];
    if (scores[i].infeasible) {
      infeasible_.try_emplace(arm, *scores[i].infeasible);
    } else {
      known[arm].emplace(index, scores[i]);
    }
  }
}

/// Finds for each policy the fastest plan with which it trains on the first trace, else the fastest
/// that it can run.
void RobustSearch::first_policies() {
  runs_.assign(policies_.size(), {});
  std::vector<bool> trains(policies_.size());
  for (std::size_t plan = 0; plan < plans_.size(); ++plan) {
    std::vector<std::pair<Arm, int>> wanted;
    for (std::size_t policy = 0; policy < policies_.size(); ++policy) {
      if (!trains[policy]) wanted.push_back({Arm{plan, policy, 1}, 0});
    }
    if (wanted.empty() || call_.cancellation.requested()) return;
    replay(wanted, false);
    for (const auto& [arm, seed] : wanted) {
      const auto scores = scores_.find(arm);
      if (scores == scores_.end()) continue;
      std::vector<std::size_t>& runs = runs_[arm.policy];
      trains[arm.policy] = scores->second.at(0).tokens > 0;
      runs.insert(trains[arm.policy] ? runs.begin() : runs.end(), plan);
    }
  }
}

/// Times Young's: longer ones as long as the first trace has more of the objective for it, else
/// shorter ones; 1 where there is nothing to vary.
double RobustSearch::best_interval(const Arm& first) {
  const bool varies = choices_.intervals.size() > 1 &&
                      !interval_options(policies_[first.policy].policy).empty() &&
                      !checkpoints_of(scores_.at(first)).empty();
  Arm best = first;
  for (const double step : {kIntervalStep, 1 / kIntervalStep}) {
    if (!varies || best != first) break;
    for (Arm next = first; next.interval < kMostProbed && next.interval > 1 / kMostProbed;) {
      next.interval *= step;
      replay({{next, 0}}, false);
      probed_.insert(next);
      const bool better =
          scores_.contains(next) && value_of(scores_.at(next).at(0)) >
                                        (1 + kWorthFollowing) * value_of(scores_.at(best).at(0));
      if (!better || call_.cancellation.requested()) break;
      best = next;
    }
  }
  return best.interval;
}

/// Another plan under the same policy came to the very same on the first trace: neither ran, as
/// where nodes are away when it begins. Where the policy waited for them that says nothing.
bool RobustSearch::has_twin(const Arm& arm) const {
  const ReplayScore& mine = scores_.at(arm).at(0);
  return mine.tokens > 0 && std::any_of(arms_.begin(), arms_.end(), [&](const Arm& other) {
           if (other.policy != arm.policy || other.interval != arm.interval ||
               other.plan >= arm.plan) {
             return false;
           }
           const auto known = scores_.find(other);
           if (known == scores_.end()) return false;
           const ReplayScore& theirs = known->second.at(0);
           return theirs.tokens == mine.tokens && theirs.dollars == mine.dollars &&
                  theirs.wall == mine.wall;
         });
}

/// Of what may be replayed, what is left for the race.
std::int64_t RobustSearch::race_budget() const {
  std::int64_t outside = 0;
  for (const Arm& arm : probed_) {
    outside += std::find(arms_.begin(), arms_.end(), arm) == arms_.end() ? 1 : 0;
  }
  return std::max<std::int64_t>(choices_.replays - outside, 1);
}

/// False: it is in the race, or cannot run.
bool RobustSearch::enter(const Arm& arm) {
  if (std::find(arms_.begin(), arms_.end(), arm) != arms_.end()) return false;
  if (infeasible_.contains(arm)) return false;
  race_.add();
  arms_.push_back(arm);
  return true;
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
      const bool there = known != scores_.end() && known->second.contains(sample.seed);
      const bool twin = there && sample.seed == 0 && has_twin(known->first);
      race_.take(sample.candidate, there && !twin
                                       ? std::optional(value_of(known->second.at(sample.seed)))
                                       : std::nullopt);
    }
    const std::vector<std::size_t> order = race_.ranking();
    if (order.empty()) continue;
    const Arm& best = arms_[order.front()];
    show(
        fmt::format("best so far: {}, {}", policies_[best.policy].shown(), plans_[best.plan].name));
  }
}

/// For the best; how many.
std::size_t RobustSearch::add_intervals() {
  const std::vector<std::size_t> order = race_.ranking();
  std::size_t added = 0;
  for (std::size_t i = 0; i < order.size() && i < kWithIntervals; ++i) {
    const Arm arm = arms_[order[i]];
    // Nothing to vary: no interval, or no checkpoints that take one.
    if (interval_options(policies_[arm.policy].policy).empty()) continue;
    if (checkpoints_of(scores_.at(arm)).empty()) continue;
    for (const double factor : choices_.intervals) {
      Arm other = arm;
      other.interval *= factor;
      added += enter(other) ? 1 : 0;
    }
  }
  return added;
}

/// Where the best has the longest interval of its plan and policy, and more than the next one by
/// what is worth following, twice that; where it has the shortest of several, half.
bool RobustSearch::add_further_interval() {
  const std::vector<std::size_t> order = race_.ranking();
  if (order.empty()) return false;
  Arm best = arms_[order.front()];
  std::optional<Arm> longer, shorter;  // The nearest.
  for (const Arm& arm : arms_) {
    if (arm.plan != best.plan || arm.policy != best.policy || !scores_.contains(arm)) continue;
    if (arm.interval > best.interval && (!longer || arm.interval < longer->interval)) longer = arm;
    if (arm.interval < best.interval && (!shorter || arm.interval > shorter->interval)) {
      shorter = arm;
    }
  }
  if (longer.has_value() == shorter.has_value()) return false;
  if (behind(longer ? *longer : *shorter, best).mean < kWorthFollowing) return false;
  best.interval *= longer ? 0.5 : 2;
  return enter(best);
}

std::vector<double> RobustSearch::shares_above(const Scores& mine, const Scores& others) const {
  std::vector<double> shares;
  for (const auto& [seed, score] : mine) {
    const auto other = others.find(seed);
    if (other == others.end()) continue;
    shares.push_back(share_above(value_of(score), value_of(other->second)));
  }
  return shares;
}

Interval RobustSearch::behind(const Arm& arm, const Arm& best) const {
  std::vector<double> shares = shares_above(scores_.at(arm), scores_.at(best));
  for (double& share : shares) share = 0 - share;
  return interval_of(shares);
}

void RobustSearch::report_candidates() {
  for (const std::size_t candidate : race_.ranking()) {
    const Arm& arm = arms_[candidate];
    const auto scores = scores_.find(arm);
    if (scores == scores_.end() || race_.values(candidate).empty()) continue;
    RobustCandidate out =
        summary_of(plans_[arm.plan], policies_[arm.policy], arm.interval, scores->second);
    out.behind = behind(arm, arms_[race_.ranking().front()]);
    result_.candidates.push_back(std::move(out));
  }
  std::set<std::size_t> unable;
  for (const auto& [arm, why] : infeasible_) {
    if (!runs_[arm.policy].empty() || !unable.insert(arm.policy).second) continue;
    result_.unable.push_back(
        fmt::format("{}: {} ({})", policies_[arm.policy].shown(), why.witness, why.constraint));
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
    const CandidatePolicy &mine = policies_[arm.policy], &theirs = policies_[best.policy];
    if (mine.policy.name != theirs.policy.name) {
      add("policy", mine.shown());
    } else if (arm.policy != best.policy) {
      add("new plans", mine.new_plans_by.empty() ? "its own planner" : mine.new_plans_by);
    }
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
  // The plan that is fastest undisturbed, of those that some policy can run; then its best policy
  // as published, with the checkpoints and new plans that it makes by itself.
  for (const std::size_t candidate : order) {
    const Arm& arm = arms_[candidate];
    if (plans_[arm.plan].own() || arm.interval != 1) continue;
    if (!policies_[arm.policy].new_plans_by.empty()) continue;
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
    return summary_of(plans_[arm.plan], policies_[arm.policy], arm.interval, judged_.at(arm));
  };
  const auto over = [&](const Arm& arm) -> std::optional<Interval> {
    if (!judged_.contains(arm) || !judged_.contains(best)) return std::nullopt;
    return interval_of(shares_above(judged_.at(best), judged_.at(arm)));
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
      return value_of(scores_.at(a).at(0)) > value_of(scores_.at(b).at(0));
    });
    for (const Arm& arm : first) enter(arm);
    const std::size_t keep = std::max(kFewestPolicies, (first.size() + 1) / 2);
    first.resize(std::min(first.size(), keep));
    for (Arm& arm : first) {
      arm.interval = best_interval(arm);
      enter(arm);
    }
    const auto most = static_cast<std::size_t>(race_budget() / 2);
    for (std::size_t plan = 0; plan + 1 < plans_.size(); ++plan) {
      for (const Arm& arm : first) {
        const std::vector<std::size_t>& runs = runs_[arm.policy];
        const bool any = std::any_of(runs.begin(), runs.end(),
                                     [&](std::size_t each) { return !plans_[each].own(); });
        if (arms_.size() < most && any) enter({plan, arm.policy, arm.interval});
      }
    }
    race_on(static_cast<std::int64_t>(kBeforeIntervals * static_cast<double>(race_budget())));
    std::size_t fresh = add_intervals();
    do {
      const std::vector<std::size_t> order = race_.ranking();
      const std::size_t each = order.empty() ? 0 : race_.values(order.front()).size();
      race_on(std::min(race_.samples() + static_cast<std::int64_t>(fresh * each), race_budget()));
      fresh = 1;
    } while (race_.samples() < race_budget() && !call_.cancellation.requested() &&
             add_further_interval());
    race_on(race_budget());
  } catch (const std::runtime_error&) {
    if (!call_.cancellation.requested()) throw;  // A child that Ctrl-C ended.
  }
  result_.settled = race_.settled();
  result_.replays = race_.samples() + choices_.replays - race_budget();
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
    result_.horizon = scores_.begin()->second.begin()->second.horizon;
  }
  return std::move(result_);
}

}  // namespace

RobustResult search_robust(RobustInputs inputs, double least_tokens_per_second) {
  return RobustSearch(std::move(inputs), least_tokens_per_second).run();
}

}  // namespace orrery::experiments
