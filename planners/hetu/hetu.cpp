// Hetu v2: tensor-parallel groups of unequal size inside nodes, dealt to pipelines of unequal
// length; one integer program shares layers out over the stages of a pipeline, a second one
// micro-batches over the pipelines; best by profiled layer times. The paper takes its plans from
// "pre-profiled results combined with a cost model" [Hetu v2, A.3] without printing either; the two
// programs and the split of odd groups are those of the public code (engine/strategy.py).
//
// Slow GPUs: device health is no input of a planner. A straggler is a GPU type of its own in the
// cluster file (lower peak or efficiency), or has slower block times in the profile; its slowness
// is then the ratio of layer times, as for mixed GPU types.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>

#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/hetu/costs.h"
#include "planners/kit/integers.h"
#include "planners/kit/options.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"

namespace orrery::planners {

extern const PlannerEntry kHetu;

namespace {

enum class Rest { both, use, idle };
enum class ZeroChoice { both, off, on };

/// More are not counted in an int with room to add.
constexpr std::int64_t kMostMicroBatches = 100'000'000;

struct Settings {
  HetuSettings costs;
  int tensor = 0;     // 0: all.
  int pipelines = 0;  // 0: all.
  int micro_batch = 0;
  int stage_spread = 1;
  int layouts = 64;
  int evaluate_top = 1;
  Rest rest = Rest::both;
  ZeroChoice zero = ZeroChoice::both;
};

std::vector<OptionInfo> options() {
  return {
      {"tensor_parallel", "0",
       "Full tensor-parallel degree, a power of two; rests of nodes get smaller groups. 0: all "
       "that "
       "the model and the nodes allow."},
      {"pipelines", "0", "Data-parallel pipelines, 0: all numbers. [A.3: 2, for fault tolerance]"},
      {"micro_batch_size", "0", "Samples per micro-batch, 0: all divisors of the batch."},
      {"zero", "both",
       "ZeRO-1: on [A.2], off [A.3: a failure of one pipeline then loses no state], or both, as "
       "far "
       "as the job allows them."},
      {"rest", "both",
       "GPUs of a node beyond full groups: use (in smaller groups), idle, or both."},
      {"stage_spread", "1",
       "Stages of a pipeline lie within so many of the mean, 0 to 64. [public code: 1]"},
      {"layouts", "64",
       "Ways to deal groups to pipelines that are tried, evenest first, for each degree, rest and "
       "number of pipelines; 1 or more."},
      {"hetero_tp_alpha", "2",
       "Time of a layer on half of a full group over that on the full group, 1 to 16: decides how "
       "rests split. [public code: hetero_tp_alpha, 1, 2, 4, 8]"},
      {"layer_time", "profile",
       "y of the layer program: profile (profile or roofline, with tensor-parallel collectives) "
       "[A.3], or alpha_public: slowness x hetero_tp_alpha (public code)."},
      {"objective", "iteration",
       "iteration: slowest pipeline with its fill, gradient synchronization, optimizer; or "
       "steady_public: max of o m alone (public code)."},
      {"min_micro_batches", "one",
       "Fewest micro-batches of a pipeline: one, or stages_public: as many as it has stages "
       "(public "
       "code)."},
      {"stage_order", "paper",
       "paper: weak GPU types first, of a type large groups first [Tables 5, 7, 8]; or "
       "slowest_first_public: by layer time alone (public code)."},
      {"memory_reserve_mib", "0",
       "Memory left free on each GPU in the layer program, MiB. [public code: 4096]"},
      {"evaluate_top", "1",
       "Plans that the evaluator judges, best first by the estimate; 1: the estimate decides; 0: "
       "all that fit."},
  };
}

class Hetu final : public Planner {
 public:
  explicit Hetu(Settings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override;

 private:
  Settings settings_;
};

class Search {
 public:
  Search(const PlannerInput& input, const Settings& settings)
      : input_(input),
        settings_(settings),
        costs_(std::make_shared<HetuCosts>(input, settings.costs)),
        layers_(count_layers(input.workload)),
        ranking_(input,
                 settings.evaluate_top == 0
                     ? std::size_t{4096}
                     : std::max<std::size_t>(32, static_cast<std::size_t>(settings.evaluate_top))) {
  }

  PlannerResult run();

 private:
  /// All but the deal.
  struct Combination {
    Seconds bound;
    std::size_t groups = 0;  // In groups_.
    int pipelines = 1;
    HetuVariant variant;
  };
  std::vector<HetuVariant> variants() const;
  void make_groups();
  std::vector<Combination> combinations();
  std::pair<int, int> stage_range(const HetuGroups& groups, int pipelines) const;
  bool has_room(const Combination& c);
  const Deals& deals(const Combination& c);
  bool search(const Combination& c);
  models::Infeasible nothing() const;

  const PlannerInput& input_;
  const Settings& settings_;
  std::shared_ptr<HetuCosts> costs_;
  int layers_;
  Ranking ranking_;
  SearchReport report_;
  std::vector<std::shared_ptr<const HetuGroups>> groups_;
  std::map<std::pair<std::size_t, int>, Deals> deals_;
  std::int64_t without_room_ = 0;
  double nearest_ = -1;  // Largest share of the layers that had room.
  std::string witness_;
  bool all_deals_ = true;
};

std::vector<HetuVariant> Search::variants() const {
  std::vector<int> stages;
  for (const int stage : input_.job.allowed.zero_stages) {
    if (stage == 0 && settings_.zero != ZeroChoice::on) stages.push_back(0);
    if (stage == 1 && settings_.zero != ZeroChoice::off) stages.push_back(1);
  }
  std::vector<HetuVariant> result;
  for (const ir::ScheduleKind schedule : models::plain_schedules(input_.job.allowed.schedules)) {
    for (const ir::Recompute recompute : input_.job.allowed.recompute) {
      for (const int zero : stages) {
        for (const std::int64_t size :
             divisors(std::max<std::int64_t>(1, input_.job.global_batch))) {
          if (size > input_.job.allowed.max_micro_batch_size) break;
          if (settings_.micro_batch > 0 && size != settings_.micro_batch) continue;
          if (input_.job.global_batch / size > kMostMicroBatches) continue;
          result.push_back({static_cast<int>(size), recompute, zero, schedule});
        }
      }
    }
  }
  return result;
}

void Search::make_groups() {
  std::map<NodeId, int> in_node;
  int largest = 0;
  for (const DeviceId id : input_.devices) {
    largest = std::max(largest, ++in_node[input_.cluster.device(id).node]);
  }
  for (const int degree : tensor_degrees(input_.workload, input_.job, largest)) {
    if (!is_power_of_two(degree)) continue;
    if (settings_.tensor > 0 && degree != settings_.tensor) continue;
    const auto idle = std::make_shared<const HetuGroups>(costs_->groups(degree, false));
    const auto used = std::make_shared<const HetuGroups>(costs_->groups(degree, true));
    const bool differ = idle->idle != used->idle;
    if (settings_.rest != Rest::idle && used->count() > 0) groups_.push_back(used);
    if (settings_.rest == Rest::use || idle->count() == 0) continue;
    if (differ || settings_.rest == Rest::idle) groups_.push_back(idle);
  }
}

std::pair<int, int> Search::stage_range(const HetuGroups& groups, int pipelines) const {
  const int total = groups.count();
  return {std::max(1, total / pipelines - settings_.stage_spread),
          std::min(layers_, (total + pipelines - 1) / pipelines + settings_.stage_spread)};
}

/// Best first: no layout of a combination is faster than its bound.
std::vector<Search::Combination> Search::combinations() {
  std::vector<Combination> all;
  const std::vector<HetuVariant> choices = variants();
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const int total = groups_[g]->count();
    for (int pipelines = 1; pipelines <= total; ++pipelines) {
      if (settings_.pipelines > 0 && pipelines != settings_.pipelines) continue;
      const auto [fewest, most] = stage_range(*groups_[g], pipelines);
      if (fewest > most || most * std::int64_t{pipelines} < total) continue;
      for (const HetuVariant& variant : choices) {
        if (costs_->micro_batches(variant) < pipelines) continue;
        all.push_back(
            {costs_->lower_bound(*groups_[g], variant, pipelines), g, pipelines, variant});
      }
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Combination& a, const Combination& b) { return a.bound < b.bound; });
  return all;
}

/// All groups together hold the replicas, each counted where it holds most: on a last stage, or as
/// a whole pipeline.
bool Search::has_room(const Combination& c) {
  const HetuGroups& groups = *groups_[c.groups];
  const auto [fewest, most] = stage_range(groups, c.pipelines);
  double room = 0;
  for (std::size_t k = 0; k < groups.classes.size(); ++k) {
    int best = 0;
    // The fewer stages, the more layers each may have; the last two hold the fewest activations.
    for (int stages = fewest; stages <= std::min(most, fewest + 2); ++stages) {
      for (int stage = std::max(0, stages - 2); stage < stages; ++stage) {
        best = std::max(best, costs_->most_layers(groups, static_cast<int>(k), c.variant,
                                                  c.pipelines, stage, stages));
      }
    }
    room += 1.0 * best * static_cast<double>(groups.classes[k].groups.size());
  }
  const double share = room / (1.0 * layers_ * c.pipelines);
  if (share >= 1) return true;
  ++without_room_;
  if (share > nearest_) {
    nearest_ = share;
    witness_ = fmt::format(
        "TP {}, {} pipelines, micro-batch {}, ZeRO-{}: {} groups have room for {:.0f} of {} layers "
        "(weights, states and activations)",
        groups.full, c.pipelines, c.variant.micro_batch_size, c.variant.zero, groups.count(), room,
        layers_ * c.pipelines);
  }
  return false;
}

const Deals& Search::deals(const Combination& c) {
  const auto [place, added] = deals_.try_emplace({c.groups, c.pipelines});
  if (!added) return place->second;
  const HetuGroups& groups = *groups_[c.groups];
  DealQuery query;
  for (const HetuClass& one : groups.classes) {
    query.counts.push_back(static_cast<int>(one.groups.size()));
    query.power.push_back(1 / one.layer_time.value);
  }
  query.pipelines = c.pipelines;
  std::tie(query.fewest, query.most) = stage_range(groups, c.pipelines);
  query.layouts = settings_.layouts;
  place->second = deal_groups(query);
  all_deals_ = all_deals_ && place->second.complete;
  return place->second;
}

/// False when the search must end.
bool Search::search(const Combination& c) {
  const std::shared_ptr<const HetuGroups> groups = groups_[c.groups];
  for (const Deal& deal : deals(c).deals) {
    if (canceled(input_) || (input_.work_budget > 0 && report_.work >= input_.work_budget)) {
      report_.complete = false;
      return false;
    }
    ++report_.work;
    ++report_.plans_examined;
    const std::optional<HetuLayout> layout = costs_->solve(*groups, c.variant, deal);
    if (!layout) {
      ++without_room_;
      if (nearest_ < 1) {
        nearest_ = 1;
        witness_ = fmt::format(
            "TP {}, {} pipelines, micro-batch {}, ZeRO-{}: the groups of some pipeline have no "
            "room for {} layers",
            groups->full, c.pipelines, c.variant.micro_batch_size, c.variant.zero, layers_);
      }
      continue;
    }
    if (!ranking_.wants(costs_->slowest_pipeline(*groups, c.variant, *layout))) continue;
    const auto shared = std::make_shared<const HetuLayout>(*layout);
    ranking_.offer(
        costs_->estimate(*groups, c.variant, *layout),
        [costs = costs_, variant = c.variant, shared] { return costs->build(variant, *shared); },
        [costs = costs_, variant = c.variant, shared, groups] {
          return fmt::format("TP {}{}: {}", groups->full,
                             groups->idle > 0 ? fmt::format(", {} GPUs idle", groups->idle) : "",
                             costs->describe(variant, *shared));
        });
  }
  return true;
}

models::Infeasible Search::nothing() const {
  const models::Allowed& allowed = input_.job.allowed;
  const bool zero = std::any_of(allowed.zero_stages.begin(), allowed.zero_stages.end(), [&](int s) {
    return (s == 0 && settings_.zero != ZeroChoice::on) ||
           (s == 1 && settings_.zero != ZeroChoice::off);
  });
  if (!report_.complete) return {"work budget", "the search was ended before the first plan"};
  if (!zero) {
    return {"ZeRO stage",
            fmt::format("Hetu v2 plans without ZeRO or with ZeRO-1; the job allows {} stages, none "
                        "that the option zero leaves",
                        allowed.zero_stages.size())};
  }
  if (groups_.empty()) {
    return {"tensor-parallel groups",
            fmt::format("{} devices give no group of {}", input_.devices.size(),
                        settings_.tensor > 0 ? fmt::format("degree {}", settings_.tensor)
                                             : "any degree that divides the model")};
  }
  if (without_room_ > 0) return {"device memory", witness_};
  return {"pipelines",
          fmt::format("no number of pipelines over {} devices has 1 to {} stages each, a batch of "
                      "{} to share and a schedule that the job allows",
                      input_.devices.size(), layers_, input_.job.global_batch)};
}

PlannerResult Search::run() {
  report_.work_unit = "layouts";
  if (canceled(input_)) {
    report_.complete = false;
    return {nothing(), report_};
  }
  if (layers_ < 1 || input_.job.global_batch < 1 || input_.devices.empty()) {
    return {nothing(), report_};
  }
  make_groups();
  std::size_t bounded = 0;
  const std::vector<Combination> all = combinations();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!ranking_.wants(all[i].bound)) {
      bounded = all.size() - i;
      break;
    }
    if (!has_room(all[i])) continue;
    if (!search(all[i])) break;
  }
  if (bounded > 0) {
    report_.notes.push_back(fmt::format(
        "{} of {} combinations of groups, pipelines and settings cannot be among the best", bounded,
        all.size()));
  }
  if (!all_deals_) {
    report_.notes.push_back(
        fmt::format("of some, only the {} evenest ways to deal groups to pipelines were tried",
                    settings_.layouts));
  }
  if (without_room_ > 0) {
    report_.constraints.push_back(
        {"memory of the layer program", without_room_, std::nullopt, witness_});
  }
  return ranking_.finish(kHetu.name, settings_.evaluate_top, report_, nothing());
}

PlannerResult Hetu::plan(const PlannerInput& input) const { return Search(input, settings_).run(); }

std::variant<std::unique_ptr<Planner>, PlannerEntry::BadOption> make(const Options& given) {
  OptionReader reader(options(), given);
  Settings s;
  s.tensor = static_cast<int>(reader.integer("tensor_parallel", 0, 1'000'000));
  s.pipelines = static_cast<int>(reader.integer("pipelines", 0, 1'000'000));
  s.micro_batch = static_cast<int>(reader.integer("micro_batch_size", 0, 1'000'000));
  s.zero = reader.choice<ZeroChoice>(
      "zero", {{"both", ZeroChoice::both}, {"off", ZeroChoice::off}, {"on", ZeroChoice::on}});
  s.rest =
      reader.choice<Rest>("rest", {{"both", Rest::both}, {"use", Rest::use}, {"idle", Rest::idle}});
  s.stage_spread = static_cast<int>(reader.integer("stage_spread", 0, 64));
  s.layouts = static_cast<int>(reader.integer("layouts", 1, 1'000'000));
  s.costs.alpha = reader.number("hetero_tp_alpha", 1, 16);
  s.costs.layer_time = reader.choice<HetuLayerTime>(
      "layer_time",
      {{"profile", HetuLayerTime::profile}, {"alpha_public", HetuLayerTime::alpha_public}});
  s.costs.objective = reader.choice<HetuObjective>(
      "objective",
      {{"iteration", HetuObjective::iteration}, {"steady_public", HetuObjective::steady_public}});
  s.costs.minimum = reader.choice<HetuMinimum>(
      "min_micro_batches",
      {{"one", HetuMinimum::one}, {"stages_public", HetuMinimum::stages_public}});
  s.costs.order = reader.choice<HetuOrder>(
      "stage_order",
      {{"paper", HetuOrder::paper}, {"slowest_first_public", HetuOrder::slowest_first_public}});
  s.costs.memory_reserve =
      static_cast<double>(reader.integer("memory_reserve_mib", 0, 1'000'000)) * 1_MiB;
  s.evaluate_top = static_cast<int>(reader.integer("evaluate_top", 0, 1'000'000));
  if (reader.problem()) return *reader.problem();
  return std::make_unique<Hetu>(s);
}

}  // namespace

const PlannerEntry kHetu = {
    "hetu",
    "Hetu v2, sections 5.4 and A.2-A.3; integer programs as in its public code",
    "tensor-parallel degree, odd groups of nodes, pipelines of uneven length, layers per stage, "
    "micro-batches per pipeline, micro-batch size, recompute, ZeRO-0 or 1",
    "embedding and head in the layer program (the estimate counts them), contention between flows, "
    "the placement of states that are already there",
    options,
    make,
};

}  // namespace orrery::planners
