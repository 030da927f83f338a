#include "planners/orrery/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "models/check/trainer.h"
#include "models/check/validate.h"
#include "models/cost/memory.h"
#include "models/cost/mfu.h"
#include "models/lower/lower.h"
#include "models/reshard/reshard_plan.h"
#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"

namespace orrery::planners {
namespace {

/// Plans that are kept to go on from.
constexpr std::size_t kElite = 16;
/// Of those of one structure.
constexpr int kAlike = 2;
/// Drafts that are priced for each one that is simulated; of more devices fewer, as each takes
/// longer.
constexpr int kPricedForOne = 100;
constexpr int kFewestForOne = 8;
constexpr std::size_t kDevicesForAll = 240;

int priced_for_one(const PlannerInput& input) {
  if (input.devices.size() <= kDevicesForAll) return kPricedForOne;
  return std::max(kFewestForOne,
                  static_cast<int>(kPricedForOne * kDevicesForAll / input.devices.size()));
}
/// Plans that the evaluator judges while the search looks for the next one. The search depends on
/// it, so that it does not follow the number of cores.
constexpr std::size_t kUnderWay = 2;
/// Simulations of the first cycle; and how many all cycles take on so many devices, where nothing
/// else is asked for.
constexpr double kFirstCycle = 40;
constexpr struct {
  std::size_t devices;
  std::int64_t budget;
} kBudgets[] = {{48, 280}, {960, 120}};
constexpr std::int64_t kSmallestBudget = 40;
/// Own seeds that are simulated; half as many more whose groups share experts.
constexpr std::size_t kOwnSeeds = 10;
/// A draft is simulated when its price promises at most this share of the best value: of a
/// structure that was judged before, and of a new one, which may still be tuned.
constexpr double kPromising = 1.03;
constexpr double kPromisingNew = 1.08;
/// From this cycle on cycles begin anew; and for which share of them.
constexpr int kFirstApart = 2;
constexpr double kApart = 0.6;
/// Share of tuning walks that are a few moves at random, and how many are tried.
constexpr double kNear = 0.2;
constexpr int kNearSteps = 4;
/// Drafts of the same price that are simulated.
constexpr int kJudgedAlike = 2;
/// Gradients that are sent together during the backward pass, from what PyTorch's DDP sends on.
constexpr Bytes kBuckets[] = {25_MiB, 100_MiB, 400_MiB};
/// Share of the budget that plans near another get on top.
constexpr std::int64_t kForNear = 3;
/// Moves of each kind that are tried for next_steps(), per draft priced for a simulation.
constexpr double kNextTries = 0.4;
/// Devices beyond which planners of the catalog are not asked for seeds.
constexpr std::size_t kMostForQuick = 96;
/// Devices beyond which gathers are not moved in front: where uplinks are oversubscribed, those
/// that run beside sends of the first passes leave no two pipelines alike, so that all are
/// simulated.
constexpr std::size_t kMostForGathers = 960;

/// Dollars or joules.
double per_second(OrreryObjective objective, const models::GpuType& gpu) {
  const auto value = [](const auto& known) { return known ? known->value : kNever; };
  return objective == OrreryObjective::energy ? value(gpu.power) : value(gpu.price);
}

/// How likely each kind of move is at first: what changes structure more than what tunes.
constexpr double kFirstWeights[kMoveKinds] = {3, 2, 3, 3, 2, 1.5, 1, 1, 1.5, 1, 1.5};

}  // namespace

ir::EnumNames<OrrerySeeds> enum_names(OrrerySeeds) {
  return {{OrrerySeeds::own, "own"}, {OrrerySeeds::quick, "quick"}, {OrrerySeeds::all, "all"}};
}
ir::EnumNames<OrreryObjective> enum_names(OrreryObjective) {
  return {{OrreryObjective::time, "time"},
          {OrreryObjective::dollars, "dollars"},
          {OrreryObjective::energy, "energy"},
          {OrreryObjective::frontier, "frontier"}};
}
ir::EnumNames<OrreryTarget> enum_names(OrreryTarget) {
  return {{OrreryTarget::any, "any"},
          {OrreryTarget::megatron, "megatron"},
          {OrreryTarget::flagscale, "flagscale"},
          {OrreryTarget::executor, "executor"}};
}
ir::EnumNames<OrreryAllowed> enum_names(OrreryAllowed) {
  return {{OrreryAllowed::everything, "everything"}, {OrreryAllowed::as_others, "as_others"}};
}
ir::EnumNames<OrreryWithout> enum_names(OrreryWithout) {
  return {{OrreryWithout::nothing, "nothing"},     {OrreryWithout::layers, "layers"},
          {OrreryWithout::batches, "batches"},     {OrreryWithout::groups, "groups"},
          {OrreryWithout::pipelines, "pipelines"}, {OrreryWithout::order, "order"},
          {OrreryWithout::placement, "placement"}, {OrreryWithout::idle, "idle"},
          {OrreryWithout::zero, "zero"},           {OrreryWithout::schedule, "schedule"},
          {OrreryWithout::transfer, "transfer"},   {OrreryWithout::experts, "experts"}};
}

void describe(config::Visitor& v, OrrerySettings& s) {
  v.optional(
      "budget", s.budget,
      "Simulations, beside those of planners that give seeds; a smaller work budget wins. A larger "
      "one goes on where a smaller one ends. 0: 280, 120 for more than 48 devices, 40 for more "
      "than 960. After 40, 120, 280, 600, ... up to six more try fewer layers under ZeRO-3 and "
      "other ways to send the gradients and activations of the best plan.");
  v.optional("seeds", s.seeds,
             "Where the search begins. own: drafts by counts of GPU types; quick: and plans of the "
             "planners that take well under a second, on up to 96 devices; all: and the best plan "
             "of each planner of the catalog, of eight that are judged, so that the result is "
             "never slower than any of them.");
  v.optional(
      "allowed", s.allowed,
      "everything: all that the job allows, gradients synchronized during the backward "
      "pass, also in pieces of one size, groups of a stage that share experts (single GPUs of "
      "several types unlike numbers of them), and on up to "
      "960 devices parameters gathered during the next forward pass and, where even ones "
      "fit nowhere, shards of ZeRO that are larger on some GPU types; as_others: what plans "
      "of other planners of the catalog have, so without pieces, such gathers, uneven "
      "shards and shared experts, and with one chunk in each stage.");
  v.optional(
      "target", s.target,
      "For whom the plan must be executable. megatron: one tensor-parallel degree, pipelines "
      "that are alike, whose stages may have unequal layers, 1F1B, ZeRO-1 at most, one kind of "
      "recomputation, ranks of a node in one run, so that orrery export can write it; flagscale: "
      "as megatron, but with a degree for each run of stages of one GPU type, and no virtual "
      "stages; executor: Orrery's own (Megatron's sequence parallelism alone, no ZeRO-3 with tied "
      "embeddings).");
  v.optional("objective", s.objective,
             "time of an iteration, dollars for it, or energy (what the boards of the GPUs may "
             "draw, so an upper bound): GPUs that a plan leaves out cost and draw nothing. "
             "frontier: the search is shared by time, dollars and energy, as far as all GPUs have "
             "prices and watts; the fastest plan is returned, and --explain shows all that no "
             "other beats in all of them.");
  v.optional("without", s.without,
             "A kind of move to leave out: for ablations; with experts no groups share any.");
  v.between("budget", s.budget, std::int64_t{0}, std::int64_t{100'000'000});
}

OrrerySearch::OrrerySearch(const PlannerInput& input, const OrrerySettings& settings)
    : input_(input),
      settings_(settings),
      objective_(settings.objective == OrreryObjective::frontier ? OrreryObjective::time
                                                                 : settings.objective),
      costs_(input),
      balance_(input, costs_),
      moves_(input, costs_, balance_, limits_),
      rng_(input.seed),
      bound_(lower_bound(input, costs_.stage_costs())),
      bounded_(input.evaluator.is_undisturbed()),
      weight_(std::begin(kFirstWeights), std::end(kFirstWeights)) {
  limits_.chunks = settings.allowed == OrreryAllowed::everything;
  limits_.gathers = limits_.chunks && input.devices.size() <= kMostForGathers;
  limits_.weights = limits_.gathers && (settings.target == OrreryTarget::any ||
                                        settings.target == OrreryTarget::executor);
  limits_.uniform =
      settings.target == OrreryTarget::megatron || settings.target == OrreryTarget::flagscale;
  limits_.mixed_stages = !limits_.uniform;
  limits_.experts = input.workload.shape.experts > 0 &&
                    settings.allowed == OrreryAllowed::everything &&
                    settings.without != OrreryWithout::experts;
  if (settings.without != OrreryWithout::nothing) {
    weight_[static_cast<int>(settings.without) - 1] = 0;
  }
  limits_.unlike_experts = limits_.experts && !limits_.uniform;
  // Where all pipelines are alike few moves lead away from shared experts: first without.
  experts_later_ =
      limits_.experts && limits_.uniform && settings.objective != OrreryObjective::frontier;
  set_experts(limits_.experts && !experts_later_);
  report_.work_unit = "simulations";
}

void OrrerySearch::set_experts(bool shared) {
  limits_.experts = shared;
  kinds_ = shared ? kMoveKinds : static_cast<int>(MoveKind::experts);
  weight_.resize(as_size(kinds_), kFirstWeights[static_cast<int>(MoveKind::experts)]);
}

std::int64_t OrrerySearch::own_budget() const {
  if (settings_.budget > 0) return settings_.budget;
  for (const auto& [devices, budget] : kBudgets) {
    if (input_.devices.size() <= devices) return budget;
  }
  return kSmallestBudget;
}

std::int64_t OrrerySearch::budget() const {
  const std::int64_t all = own_budget() + borrowed_ + extra_;
  return input_.work_budget > 0 ? std::min(all, input_.work_budget) : all;
}

bool OrrerySearch::over() const {
  const std::int64_t end = stop_at_ > 0 ? std::min(stop_at_, budget()) : budget();
  return canceled(input_) || report_.work >= end;
}

double OrrerySearch::rate_of(OrreryObjective objective,
                             const std::vector<DeviceId>& devices) const {
  if (objective == OrreryObjective::time) return 1;
  double sum = 0;
  for (const DeviceId device : devices) sum += per_second(objective, input_.cluster.gpu(device));
  return sum;
}

double OrrerySearch::rate_of(const Draft& draft) const {
  return objective_ == OrreryObjective::time ? 1 : rate_of(objective_, devices_of(draft));
}

std::vector<OrreryObjective> OrrerySearch::others() const {
  std::vector<OrreryObjective> known;
  for (const auto objective : {OrreryObjective::dollars, OrreryObjective::energy}) {
    const bool asked =
        settings_.objective == objective || settings_.objective == OrreryObjective::frontier;
    if (asked && rate_of(objective, input_.devices) < kNever) known.push_back(objective);
  }
  return known;
}

void OrrerySearch::tell() const {
  if (input_.progress == nullptr) return;
  input_.progress->bound = bounded_ ? bound_.seconds.value : 0;
  input_.progress->work = report_.work;
  input_.progress->budget = budget();
  if (best_ >= 0) input_.progress->best = judged_[best_].seconds;
}

/// What the target's frameworks cannot run, beside what validate() refuses.
bool OrrerySearch::admissible(const ir::Plan& plan) {
  if (!models::validate(plan, input_.cluster, input_.workload, input_.job).empty()) return false;
  if (!models::find_unsupported(plan).empty()) return false;
  const ir::Communication& communication = plan.communication;
  if (!limits_.experts && shares_experts(plan)) return false;
  if (settings_.allowed == OrreryAllowed::as_others &&
      (communication.parameter_overlap || communication.bucket.value > 0 ||
       plan.virtual_stages > 1)) {
    return false;
  }
  const auto runs = [&](models::PlanRunner runner) {
    const bool can = models::reasons_against(runner, plan, input_.cluster, input_.workload).empty();
    refused_ += can ? 0 : 1;
    return can;
  };
  switch (settings_.target) {
    case OrreryTarget::any:
      break;
    case OrreryTarget::megatron:
      return runs(models::PlanRunner::megatron);
    case OrreryTarget::flagscale:
      return runs(models::PlanRunner::flagscale);
    case OrreryTarget::executor:
      return runs(models::PlanRunner::executor);
  }
  return true;
}

bool OrrerySearch::judge(Judged made, std::vector<MoveKind> kinds) {
  if (!admissible(made.plan)) return false;
  const Seconds expected{made.preview == kNever ? 0 : made.preview};
  const ir::MemoryVerdict memory =
      models::check_memory(made.plan, input_.cluster, input_.workload, input_.job, input_.profile);
  if (!memory.fits()) {
    forbid_by_memory(report_, expected, [&] {
      return fmt::format("{}: {}", in_words(made.plan, input_.workload), memory.explain());
    });
    return false;
  }
  ++report_.work;
  if (made.draft) made.structure = structure(*made.draft);
  ++tries_[made.structure];
  auto evaluation = input_.evaluator.start(made.plan);
  under_way_.push_back({std::move(made), std::move(kinds), std::move(evaluation)});
  wait(kUnderWay);
  return true;
}

void OrrerySearch::wait(std::size_t most) {
  while (under_way_.size() > most) {
    UnderWay first = std::move(under_way_.front());
    under_way_.pop_front();
    take(std::move(first));
  }
}

void OrrerySearch::take(UnderWay one) {
  Judged& made = one.made;
  made.evaluation = one.evaluation->join();
  if (!made.evaluation.memory.fits()) {
    const Seconds expected{made.preview == kNever ? 0 : made.preview};
    forbid_by_memory(report_, expected, [&] {
      return fmt::format("{}: {} (as the evaluator counts)", in_words(made.plan, input_.workload),
                         made.evaluation.memory.explain());
    });
    return;
  }
  ++report_.judged;
  made.seconds = made.evaluation.iteration_time.value;
  made.value = made.seconds * rate_of(objective_, ir::devices_of(made.plan));
  if (!one.kinds.empty()) {
    const double ratio = made.seconds / made.preview;
    const std::pair key{made.draft->schedule, made.draft->overlap};
    double& correction = correction_.try_emplace(key, ratio).first->second;
    correction += 0.2 * (ratio - correction);
    if (elite_.empty() || made.value < judged_[elite_.front()].value) {
      // What helped is tried more often.
      for (const MoveKind kind : one.kinds) {
        double& weight = weight_[index_of(kind)];
        weight = std::min(weight * 1.02, 6.0);
      }
    }
  }
  judged_.push_back(std::move(made));
  enter_elite(static_cast<int>(judged_.size()) - 1);
  tell();
}

void OrrerySearch::enter_elite(int index) {
  const auto better = [this](int a, int b) { return judged_[a].value < judged_[b].value; };
  if (best_ < 0 || better(index, best_)) best_ = index;
  elite_.insert(std::upper_bound(elite_.begin(), elite_.end(), index, better), index);
  // Of one structure the best few, so that the search keeps others to go on from.
  const std::uint64_t own = judged_[index].structure;
  int alike = 0;
  for (std::size_t e = 0; e < elite_.size(); ++e) {
    if (judged_[elite_[e]].structure != own || ++alike <= kAlike) continue;
    elite_.erase(elite_.begin() + static_cast<long>(e));
    break;
  }
  if (elite_.size() > kElite) elite_.pop_back();
}

void OrrerySearch::aim_at(OrreryObjective objective) {
  objective_ = objective;
  best_ = -1;
  for (Judged& one : judged_) {
    one.value = one.seconds * rate_of(objective, ir::devices_of(one.plan));
  }
  fill_elite(judged_.size());
}

void OrrerySearch::fill_elite(std::size_t count) {
  elite_.clear();
  for (std::size_t i = 0; i < count; ++i) enter_elite(static_cast<int>(i));
}

void OrrerySearch::seed_plan(const ir::Plan& plan, const std::string& what) {
  std::optional<Draft> draft = draft_of(plan, input_);
  DraftCosts::View view;
  if (draft) {
    if (!seen_.insert(*draft).second) return;
    view = costs_.view(*draft);
  }
  Judged made;
  made.preview = view.seconds;
  made.plan = plan;
  made.draft = std::move(draft);
  made.view = std::move(view);
  made.what = what;
  judge(std::move(made));
}

void OrrerySearch::seed_own() {
  const auto rate = [this](const Draft& draft) { return rate_of(draft); };
  std::vector<SeedDraft> seeds = own_seeds(input_, costs_, moves_, rate, 4 * kOwnSeeds, priced_);
  std::size_t simulated[2] = {0, 0};  // Without experts that are shared, and with.
  // Of each number of pipelines on so many devices the best few.
  const int alike = input_.devices.size() <= kMostForSubsets ? 2 : 3;
  std::map<std::tuple<bool, std::size_t, std::size_t>, int> of_size;
  for (SeedDraft& seed : seeds) {
    if (over()) break;
    const bool shared = shares_experts(seed.draft);
    if (simulated[shared] >= (shared ? kOwnSeeds / 2 : kOwnSeeds)) continue;
    const std::tuple size{shared, seed.draft.pipelines.size(), devices_of(seed.draft).size()};
    if (of_size[size]++ >= alike) continue;
    if (!seen_.insert(seed.draft).second) continue;
    Judged made;
    made.preview = seed.seconds;
    made.view = costs_.view(seed.draft);
    made.plan = plan_of(seed.draft, input_);
    made.draft = std::move(seed.draft);
    made.what = "draft by " + seed.what;
    simulated[shared] += judge(std::move(made)) ? 1 : 0;
  }
}

void OrrerySearch::seed_others() {
  if (settings_.seeds == OrrerySeeds::own) return;
  const bool all = settings_.seeds == OrrerySeeds::all;
  if (!all && input_.devices.size() > kMostForQuick) return;
  static constexpr const char* kQuick[] = {"megatron_grid", "hethub", "whale", "autohet",
                                           "hexiscale",     "hetu",   "metis"};
  std::vector<std::pair<std::string, Options>> asked;
  if (all) {  // Judged as in comparisons.
    for (const PlannerEntry* entry : catalog()) {
      if (entry->name == std::string("orrery")) continue;
      Options options;
      for (const OptionInfo& info : entry->options()) {
        if (info.name == "evaluate_top") options.emplace_back(info.name, "8");
        if (info.name == "default_budget") options.emplace_back(info.name, "2000000");
        if (info.name == "effort") options.emplace_back(info.name, "500");
      }
      asked.emplace_back(entry->name, options);
    }
  } else {
    for (const char* name : kQuick) {
      Options options = {{"evaluate_top", "1"}};
      if (name == std::string("metis")) options.emplace_back("default_budget", "100000");
      if (name == std::string("hexiscale")) options.emplace_back("rounds", "10");
      if (name == std::string("hetu")) options.emplace_back("layouts", "8");
      asked.emplace_back(name, options);
    }
  }
  for (auto& [name, options] : asked) {
    if (over()) return;
    for (auto& [option, value] : options) {
      if (option == "evaluate_top" && input_.work_budget > 0 && report_.work + 9 > budget()) {
        value = "1";
      }
    }
    const PlannerEntry* entry = find_planner(name);
    PlannerInput input = input_;
    input.work_budget = 0;
    input.progress = nullptr;
    const PlannerResult result = entry->make(options)->plan(input);
    report_.work += result.report.judged;
    borrowed_ += result.report.judged;
    if (const auto* plan = std::get_if<ir::Plan>(&result.outcome)) {
      ir::Plan unsigned_plan = *plan;
      unsigned_plan.predicted.reset();
      seed_plan(unsigned_plan, "plan of " + name);
    }
  }
}

double OrrerySearch::correction(const Draft& draft) const {
  const auto found = correction_.find({draft.schedule, draft.overlap});
  return found == correction_.end() ? 1 : found->second;
}

bool OrrerySearch::known(const Draft& draft, const DraftCosts::View& view) const {
  const auto alike = seen_price_.find(view.seconds);
  return (alike != seen_price_.end() && alike->second >= kJudgedAlike) || seen_.contains(draft);
}

std::uint64_t OrrerySearch::structure(const Draft& draft) const {
  std::vector<std::vector<int>> kinds;
  for (const DraftPipeline& pipeline : draft.pipelines) {
    kinds.push_back(balance_.kind(pipeline));
    kinds.back().front() = -2;  // In place of the number of micro-batches.
  }
  std::sort(kinds.begin(), kinds.end());
  std::vector<std::int32_t> all = {static_cast<int>(index_of(draft.schedule)),
                                   draft.virtual_stages};
  for (const std::vector<int>& kind : kinds) all.insert(all.end(), kind.begin(), kind.end());
  return NumbersHash{}(all);
}

std::optional<OrrerySearch::Child> OrrerySearch::walk(int parent, int steps, double heat,
                                                      bool explore) {
  const Judged& from = judged_[parent];
  // What the price leaves out of the parent it leaves out of plans like it.
  const double ratio = from.seconds / from.preview / correction(*from.draft);
  Child here{from.value, *from.draft, from.view, {}};
  std::optional<Child> best;
  double total = 0;
  for (const double weight : weight_) total += weight;
  for (int step = 0; step < steps; ++step) {
    const double temperature =
        heat * here.predicted * (1 - static_cast<double>(step) / static_cast<double>(steps));
    double drawn = rng_.uniform() * total;
    int kind = 0;
    while (kind + 1 < kinds_ && drawn >= weight_[kind]) drawn -= weight_[kind++];
    Child next;
    next.draft = here.draft;
    ++priced_;
    if (!moves_.apply(static_cast<MoveKind>(kind), next.draft, here.view, rng_)) continue;
    next.view = costs_.view(next.draft);
    if (next.view.seconds == kNever) continue;
    next.predicted = next.view.seconds * correction(next.draft) * ratio * rate_of(next.draft);
    const double worse = next.predicted - here.predicted;
    if (worse > 0 && (temperature <= 0 || rng_.uniform() >= std::exp(-worse / temperature))) {
      continue;
    }
    next.kinds = here.kinds;
    next.kinds.push_back(static_cast<MoveKind>(kind));
    here = std::move(next);
    if (best && here.predicted >= best->predicted) continue;
    if (explore && tries_.contains(structure(here.draft))) continue;
    if (known(here.draft, here.view)) continue;
    // Few drafts on a walk are what a target runs: the best of those counts.
    if (settings_.target != OrreryTarget::any && !admissible(plan_of(here.draft, input_))) continue;
    best = here;
  }
  return best;
}

bool OrrerySearch::judge(Child child, int parent) {
  seen_.insert(child.draft);
  ++seen_price_[child.view.seconds];
  Judged made;
  made.preview = child.view.seconds;
  made.plan = plan_of(child.draft, input_);
  made.draft = std::move(child.draft);
  made.view = std::move(child.view);
  made.parent = parent;
  return judge(std::move(made), std::move(child.kinds));
}

/// A walk from each seed, so that structures are compared at their best.
void OrrerySearch::polish_seeds() {
  wait();
  const std::vector<int> seeds = elite_;
  for (const int seed : seeds) {
    if (over()) break;
    if (!judged_[seed].draft || judged_[seed].preview == kNever) continue;
    if (auto found = walk(seed, 3 * priced_for_one(input_), 0.01, false)) {
      judge(std::move(*found), seed);
    }
  }
  wait();
}

OrrerySearch::Cycle OrrerySearch::cycle() const {
  const auto done = static_cast<double>(report_.work - borrowed_ - extra_ - begun_at_);
  Cycle cycle;
  double begin = 0, length = kFirstCycle;
  for (; done >= begin + length; ++cycle.number) {
    begin += length;
    length *= 2;
  }
  cycle.done = (done - begin) / length;
  return cycle;
}

/// The best most often; early in a cycle others of the elite nearly as often.
int OrrerySearch::pick_parent() {
  std::vector<int> movable;
  for (const int index : elite_) {
    if (judged_[index].draft && judged_[index].preview < kNever) movable.push_back(index);
  }
  if (movable.empty()) return -1;
  if (rng_.bernoulli(0.2 + 0.6 * cycle().done)) return movable.front();
  return movable[as_size(rng_.integer(0, static_cast<std::int64_t>(movable.size()) - 1))];
}

void OrrerySearch::climb() {
  const MoveLimits all = limits_;
  int idle = 0;
  const std::size_t seeds = judged_.size();
  bool apart = false;
  for (int last = cycle().number; !over() && idle < 100;) {
    if (const int now = cycle().number; now != last) {
      wait();
      lighten();
      vary_transfers();
      last = now;
      apart = now >= kFirstApart;
      if (apart) fill_elite(seeds);
      // Chunks that the best plan so far does without are left out, so that the rest is tried more.
      limits_ = all;
      if (apart && best_ >= 0 && judged_[best_].draft &&
          judged_[best_].draft->virtual_stages == 1) {
        limits_.chunks = limits_.gathers = false;
      }
    }
    if (apart && cycle().done > kApart) {
      wait();
      fill_elite(judged_.size());
      apart = false;
      limits_ = all;
    }
    if (elite_.empty()) wait();  // for what is under way
    if (elite_.empty()) break;
    if (bounded_ && objective_ == OrreryObjective::time &&
        judged_[elite_.front()].seconds <= bound_.seconds.value * (1 + 1e-6)) {
      break;
    }
    const int parent = pick_parent();
    if (parent < 0) break;
    // Short walks tune; long and hot ones leave for a structure that was not judged. The price does
    // not see all that makes plans differ: a few moves at random find what it would not choose.
    const bool tune = rng_.bernoulli(0.4 + 0.4 * cycle().done);
    const bool near = tune && rng_.bernoulli(kNear);
    const int steps = near ? kNearSteps : priced_for_one(input_) * (tune ? 1 : 4) / 2;
    // Where walks find nothing new they become hotter, and worse drafts are simulated.
    const double restless = 1 + idle / 10.0;
    const double heat = near ? 1 : (tune ? 0.002 : 0.01 * std::pow(5, rng_.uniform())) * restless;
    std::optional<Child> found = walk(parent, steps, heat, !tune);
    const double best = judged_[elite_.front()].value;
    const double promising = (tune ? kPromising : kPromisingNew) + 0.002 * idle;
    if (!found || (found->predicted > promising * best && !rng_.bernoulli(0.1))) {
      ++idle;
      continue;
    }
    idle = judge(std::move(*found), parent) ? 0 : idle + 1;
  }
  wait();
  fill_elite(judged_.size());
  limits_ = all;
}

int OrrerySearch::most_lighter(Draft draft) const {
  int most = draft.lighter_layers, fewest_too_many = costs_.layers() + 1;
  while (most + 1 < fewest_too_many) {
    draft.lighter_layers = (most + fewest_too_many) / 2;
    if (costs_.view(draft).seconds < kNever) {
      most = draft.lighter_layers;
    } else {
      fewest_too_many = draft.lighter_layers;
    }
  }
  return most;
}

void OrrerySearch::lighten() {
  if (elite_.empty() || weight_[index_of(MoveKind::zero)] == 0 || !lighter_zero(input_.job)) return;
  std::optional<Child> chosen;
  int parent = -1;
  for (const int index : elite_) {
    const Judged& of = judged_[index];
    if (!of.draft || of.preview == kNever || of.draft->zero != ir::Zero{3, 0}) continue;
    const int most = most_lighter(*of.draft);
    if (most == of.draft->lighter_layers) continue;
    for (const bool overlap : {false, true}) {
      Child child{0, *of.draft, {}, {MoveKind::zero}};
      child.draft.lighter_layers = most;
      if (most == costs_.layers()) {
        child.draft.zero = *lighter_zero(input_.job);
        child.draft.lighter_layers = 0;
      }
      if (child.draft.overlap != overlap) switch_overlap(child.draft, limits_.gathers);
      child.view = costs_.view(child.draft);
      ++priced_;
      if (child.view.seconds == kNever || seen_.contains(child.draft)) continue;
      child.predicted = of.value * child.view.seconds / of.preview;
      if (chosen && chosen->predicted <= child.predicted) continue;
      chosen = std::move(child);
      parent = index;
    }
  }
  if (!chosen || chosen->predicted > kPromising * judged_[elite_.front()].value) return;
  ++extra_;
  if (over()) return;
  judge(std::move(*chosen), parent);
  wait();
}

void OrrerySearch::vary_transfers() {
  if (elite_.empty() || weight_[index_of(MoveKind::transfer)] == 0) return;
  const auto vary = [this](const auto& change) {
    const Judged of = judged_[best_];
    if (!of.draft || of.preview == kNever) return;
    Child child{of.seconds, *of.draft, of.view, {MoveKind::transfer}};
    change(child.draft);
    if (seen_.contains(child.draft)) return;
    ++extra_;
    if (over()) return;
    judge(std::move(child), best_);
    wait();
  };
  vary([this](Draft& draft) { switch_overlap(draft, limits_.gathers); });
  if (limits_.gathers) {
    vary([](Draft& draft) { draft.gathers_next = has_gathers(draft) && !draft.gathers_next; });
  }
  vary([](Draft& draft) { draft.transfer = other_transfer(draft.transfer); });
  if (settings_.allowed == OrreryAllowed::as_others) return;
  for (const Bytes bucket : kBuckets) {
    vary([&](Draft& draft) {
      if (draft.overlap) draft.bucket = bucket;
    });
  }
}

double OrrerySearch::moved(int index) {
  const auto [known, fresh] = moved_.try_emplace(index, kNever);
  if (!fresh) return known->second;
  const ir::Plan& from = input_.near->plan;
  models::ReshardOptions options;
  options.bytes = models::weight_bytes(input_.job);
  const std::vector<DeviceId> before = ir::devices_of(from);
  std::set_difference(before.begin(), before.end(), input_.devices.begin(), input_.devices.end(),
                      std::back_inserter(options.lost));
  const ir::Plan& to = judged_[index].plan;
  if (models::find_problems(from, to, input_.cluster, options).empty()) {
    known->second = models::sum(models::plan_reshard(from, to, input_.cluster, input_.topology,
                                                     input_.workload, options)
                                    .moved)
                        .value;
  }
  return known->second;
}

int OrrerySearch::nearest() {
  const double limit = (1 + input_.near->within) * judged_[elite_.front()].value;
  int chosen = elite_.front();
  for (int i = 0; i < static_cast<int>(judged_.size()); ++i) {
    if (judged_[i].value > limit || moved(i) > moved(chosen)) continue;
    if (moved(i) < moved(chosen) || judged_[i].value < judged_[chosen].value) chosen = i;
  }
  return chosen;
}

void OrrerySearch::approach() {
  if (elite_.empty()) return;
  extra_ += own_budget() / kForNear;
  for (int idle = 0; !over() && idle < 100;) {
    const int chosen = nearest();
    if (moved(chosen) == 0) return;
    // Those that move less and are too slow, fastest first; and the nearest itself.
    std::vector<int> parents;
    for (int i = 0; i < static_cast<int>(judged_.size()); ++i) {
      const bool movable = judged_[i].draft && judged_[i].preview < kNever;
      if (movable && (i == chosen || moved(i) < moved(chosen))) parents.push_back(i);
    }
    if (parents.empty()) return;
    std::stable_sort(parents.begin(), parents.end(),
                     [&](int a, int b) { return judged_[a].value < judged_[b].value; });
    parents.resize(std::min(parents.size(), kElite));
    const int parent =
        parents[as_size(rng_.integer(0, static_cast<std::int64_t>(parents.size()) - 1))];
    // Few moves: each may move state.
    std::optional<Child> found = walk(parent, std::max(4, priced_for_one(input_) / 8), 0, false);
    idle = found && judge(std::move(*found), parent) ? 0 : idle + 1;
    wait();
  }
}

std::vector<NextStep> OrrerySearch::next_steps(const Judged& best) const {
  std::vector<NextStep> steps;
  if (!best.draft || best.preview == kNever) return steps;
  const int tries = std::max(4, static_cast<int>(kNextTries * priced_for_one(input_)));
  const double ratio = best.seconds / best.preview;
  for (int kind = 0; kind < kinds_; ++kind) {
    Rng rng = Rng(input_.seed).fork(as_size(kind) + 1);
    std::optional<NextStep> cheapest;
    for (int i = 0; i < tries && !canceled(input_); ++i) {
      Draft draft = *best.draft;
      if (!moves_.apply(static_cast<MoveKind>(kind), draft, best.view, rng)) continue;
      if (draft == *best.draft) continue;
      const double seconds = costs_.view(draft).seconds * ratio;
      if (seconds == kNever || (cheapest && cheapest->estimate.value <= seconds)) continue;
      cheapest = NextStep{enum_names(MoveKind{})[as_size(kind)].second,
                          differences(*best.draft, draft), Seconds{seconds}};
    }
    if (cheapest) steps.push_back(std::move(*cheapest));
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const NextStep& a, const NextStep& b) { return a.estimate < b.estimate; });
  return steps;
}

std::vector<FrontierPlan> OrrerySearch::frontier() const {
  struct Candidate {
    std::vector<double> costs;  ///< Seconds, then of others().
    const Judged* plan;
  };
  std::vector<Candidate> order;
  for (const Judged& one : judged_) {
    Candidate candidate{{one.seconds}, &one};
    for (const OrreryObjective objective : others()) {
      candidate.costs.push_back(one.seconds * rate_of(objective, ir::devices_of(one.plan)));
    }
    order.push_back(std::move(candidate));
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Candidate& a, const Candidate& b) { return a.costs < b.costs; });
  std::vector<FrontierPlan> front;
  std::vector<const Candidate*> kept;
  for (const Candidate& one : order) {
    const bool beaten = std::any_of(kept.begin(), kept.end(), [&](const Candidate* other) {
      return std::equal(one.costs.begin(), one.costs.end(), other->costs.begin(),
                        [](double own, double others) { return own >= others; });
    });
    if (beaten) continue;
    kept.push_back(&one);
    const ir::Plan& plan = one.plan->plan;
    const Seconds time{one.plan->seconds};
    front.push_back(
        {in_words(plan, input_.workload), static_cast<std::int64_t>(ir::devices_of(plan).size()),
         time, models::dollars_per_million_tokens(plan, input_.cluster, input_.workload, time),
         models::joules_per_token(plan, input_.cluster, input_.workload, time)});
  }
  return front;
}

/// From the seed to a plan: what the steps gained that gained most.
std::vector<std::string> OrrerySearch::story(int of) const {
  std::vector<int> line;
  for (int i = of; i >= 0; i = judged_[i].parent) line.push_back(i);
  std::reverse(line.begin(), line.end());
  const Judged& seed = judged_[line.front()];
  struct Step {
    double gained;
    std::string what;
  };
  std::vector<Step> steps;
  for (std::size_t i = 1; i < line.size(); ++i) {
    const Judged &before = judged_[line[i - 1]], &after = judged_[line[i]];
    steps.push_back({before.seconds - after.seconds, differences(*before.draft, *after.draft)});
  }
  constexpr std::size_t kTold = 4;
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.gained > b.gained; });
  std::vector<std::string> text = {fmt::format(
      "began with the {}: {:.4g} s; {} step{} from there{}", seed.what, seed.seconds, steps.size(),
      steps.size() == 1 ? "" : "s", steps.size() > kTold ? ", of which gained most" : "")};
  for (std::size_t i = 0; i < std::min(kTold, steps.size()); ++i) {
    text.push_back(fmt::format("{:+.3g} s: {}", -steps[i].gained, steps[i].what));
  }
  return text;
}

PlannerResult OrrerySearch::finish() {
  report_.plans_examined = priced_;
  report_.complete = !canceled(input_) && (input_.work_budget == 0 || report_.work < budget() ||
                                           input_.work_budget >= own_budget() + borrowed_ + extra_);
  if (elite_.empty()) {
    if (refused_ > 0) {
      std::string target;
      for (const auto& [value, name] : enum_names(OrreryTarget{})) {
        if (value == settings_.target) target = name;
      }
      return {models::Infeasible{
                  "executable by " + target,
                  fmt::format("{} plans were tried, none of which it can run", refused_)},
              std::move(report_)};
    }
    for (const ConstraintCost& cost : report_.constraints) {
      if (cost.constraint == kDeviceMemory) {
        return {models::Infeasible{kDeviceMemory, cost.witness}, std::move(report_)};
      }
    }
    return {models::Infeasible{kDeviceMemory,
                               "no draft by counts of GPU types fits, whatever its degrees, "
                               "recomputation and micro-batches"},
            std::move(report_)};
  }
  const int chosen = input_.near ? nearest() : elite_.front();
  const Judged& best = judged_[chosen];
  report_.estimate = Seconds{best.preview == kNever ? best.seconds : best.preview};
  report_.chosen = in_words(best.plan, input_.workload);
  // Plans that read alike and take as long, whose equal groups change places, are named once.
  std::set<std::pair<std::string, std::string>> said = {
      {report_.chosen, fmt::format("{:.6g}", best.seconds)}};
  for (std::size_t i = 0; i < elite_.size() && report_.runners_up.size() < 5; ++i) {
    const Judged& other = judged_[elite_[i]];
    const std::string words = in_words(other.plan, input_.workload);
    if (!said.emplace(words, fmt::format("{:.6g}", other.seconds)).second) continue;
    report_.runners_up.push_back({words,
                                  Seconds{other.preview == kNever ? other.seconds : other.preview},
                                  Seconds{other.seconds}});
  }
  report_.notes = story(chosen);
  if (input_.near) {
    const Judged& fastest = judged_[elite_.front()];
    report_.notes.push_back(
        chosen == elite_.front()
            ? fmt::format("a switch to it moves {:.3g} GiB of weights and master copies, and no "
                          "plan within {:g} % of it was found that moves less",
                          moved(chosen) / 0x1p30, 100 * input_.near->within)
            : fmt::format("a switch to it moves {:.3g} GiB of weights and master copies; to the "
                          "best plan found, {:.4g} s, {:.3g} GiB",
                          moved(chosen) / 0x1p30, fastest.seconds, moved(elite_.front()) / 0x1p30));
  }
  report_.next_steps = next_steps(best);
  if (settings_.objective == OrreryObjective::frontier) report_.frontier = frontier();
  if (bounded_) {
    report_.notes.push_back(fmt::format(
        "lower bound {:.4g} s ({}): no plan of the job is faster; this one is {:.1f} % above it",
        bound_.seconds.value, bound_.what, 100 * (best.seconds / bound_.seconds.value - 1)));
  }
  ir::Plan plan = best.plan;
  sign(plan, "orrery", input_, *report_.estimate, best.evaluation.memory);
  return {std::move(plan), std::move(report_)};
}

PlannerResult OrrerySearch::run() {
  if (input_.devices.empty()) {
    return {models::Infeasible{"number of devices", "no device is given"}, std::move(report_)};
  }
  const std::vector<ir::Recompute>& kinds = input_.job.allowed.recompute;
  if (!kinds.empty() && std::all_of(kinds.begin(), kinds.end(), [](ir::Recompute kind) {
        return kind == ir::Recompute::experts;
      })) {
    return {models::Infeasible{"recompute", "it recomputes nothing, attention or whole layers"},
            std::move(report_)};
  }
  if (!limits_.chunks && models::plain_schedules(input_.job.allowed.schedules).empty()) {
    return {models::Infeasible{"schedule", "the job allows no schedule without virtual stages"},
            std::move(report_)};
  }
  if (settings_.objective != OrreryObjective::time && others().empty()) {
    const bool energy = settings_.objective == OrreryObjective::energy;
    for (const DeviceId device : input_.devices) {
      const models::GpuType& gpu = input_.cluster.gpu(device);
      if (energy ? gpu.power.has_value() : gpu.price.has_value()) continue;
      return {models::Infeasible{energy ? "power" : "prices",
                                 fmt::format("GPU {0} has none; --{1} sets it", gpu.name,
                                             energy ? fmt::format("power {}=\"400 W\"", gpu.name)
                                                    : fmt::format("price {}=2.50", gpu.name))},
              std::move(report_)};
    }
  }
  tell();
  if (input_.near) {
    const std::vector<DeviceId> used = ir::devices_of(input_.near->plan);
    if (std::includes(input_.devices.begin(), input_.devices.end(), used.begin(), used.end())) {
      ir::Plan plan = input_.near->plan;
      plan.predicted.reset();
      seed_plan(plan, "plan to keep near");
    }
  }
  seed_own();
  seed_others();
  polish_seeds();
  if (settings_.objective == OrreryObjective::frontier) {
    std::vector<OrreryObjective> parts = others();
    parts.insert(parts.begin(), OrreryObjective::time);
    for (std::size_t left = parts.size(); left > 0 && !canceled(input_); --left) {
      begun_at_ = left == parts.size() ? 0 : report_.work - borrowed_ - extra_;
      stop_at_ = report_.work + (budget() - report_.work) / static_cast<std::int64_t>(left);
      aim_at(parts[parts.size() - left]);
      if (objective_ != OrreryObjective::time) {
        seed_own();
        polish_seeds();
      }
      climb();
    }
    stop_at_ = 0;
    aim_at(OrreryObjective::time);
  } else {
    if (experts_later_) {
      stop_at_ = report_.work + (budget() - report_.work) / 2;
      climb();
      stop_at_ = 0;
      begun_at_ = report_.work - borrowed_ - extra_;
      set_experts(true);
      seed_own();
    }
    climb();
  }
  lighten();
  vary_transfers();
  if (input_.near) approach();
  return finish();
}

}  // namespace orrery::planners
