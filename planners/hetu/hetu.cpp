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
#include <map>
#include <memory>
#include <tuple>

#include "models/ir/names.h"
#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/hetu/costs.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"
#include "planners/kit/settings.h"

namespace orrery::planners {

ir::EnumNames<HetuLayerTime> enum_names(HetuLayerTime) {
  return {{HetuLayerTime::profile, "profile"}, {HetuLayerTime::alpha_public, "alpha_public"}};
}
ir::EnumNames<HetuObjective> enum_names(HetuObjective) {
  return {{HetuObjective::iteration, "iteration"}, {HetuObjective::steady_public, "steady_public"}};
}
ir::EnumNames<HetuMinimum> enum_names(HetuMinimum) {
  return {{HetuMinimum::one, "one"}, {HetuMinimum::stages_public, "stages_public"}};
}
ir::EnumNames<HetuOrder> enum_names(HetuOrder) {
  return {{HetuOrder::paper, "paper"}, {HetuOrder::slowest_first_public, "slowest_first_public"}};
}

namespace {

enum class HetuRest { both, use, idle };
enum class HetuZero { both, off, on };

ir::EnumNames<HetuRest> enum_names(HetuRest) {
  return {{HetuRest::both, "both"}, {HetuRest::use, "use"}, {HetuRest::idle, "idle"}};
}
ir::EnumNames<HetuZero> enum_names(HetuZero) {
  return {{HetuZero::both, "both"}, {HetuZero::off, "off"}, {HetuZero::on, "on"}};
}

/// Most micro-batches of a step: sums of them still fit in an int.
constexpr std::int64_t kMostMicroBatches = 100'000'000;

struct HetuSettings {
  HetuCostSettings costs;
  int tensor = 0;
  int pipelines = 0;
  int micro_batch = 0;
  HetuZero zero = HetuZero::both;
  HetuRest rest = HetuRest::both;
  int stage_spread = 1;
  int layouts = 64;
  int evaluate_top = 1;

  bool allows_zero(int stage) const {
    return (stage == 0 && zero != HetuZero::on) || (stage == 1 && zero != HetuZero::off);
  }
};

void describe(config::Visitor& v, HetuSettings& s) {
  v.optional(
      "tensor_parallel", s.tensor,
      "Full tensor-parallel degree, a power of two; rests of nodes get smaller groups. 0: all "
      "that the model and the nodes allow.");
  v.optional("pipelines", s.pipelines,
             "Data-parallel pipelines, 0: all numbers. [A.3: 2, for fault tolerance]");
  v.optional("micro_batch_size", s.micro_batch,
             "Samples per micro-batch, 0: all divisors of the batch.");
  v.optional(
      "zero", s.zero,
      "ZeRO-1: on [A.2], off [A.3: a failure of one pipeline then loses no state], or both, as "
      "far as the job allows them.");
  v.optional("rest", s.rest,
             "GPUs of a node beyond full groups: use (in smaller groups), idle, or both.");
  v.optional(
      "stage_spread", s.stage_spread,
      "Stages of a pipeline differ from the mean by at most this many, 0 to 64. [public code: 1]");
  v.optional(
      "layouts", s.layouts,
      "Ways to deal groups to pipelines that are tried, evenest first, for each degree, rest "
      "and number of pipelines; 1 or more.");
  v.optional(
      "hetero_tp_alpha", s.costs.alpha,
      "Time of a layer on half of a full group over that on the full group, 1 to 16: decides "
      "how rests split. [public code: hetero_tp_alpha, 1, 2, 4, 8]");
  v.optional("layer_time", s.costs.layer_time,
             "y of the layer program: profile (profile or roofline, with tensor-parallel "
             "collectives) [A.3], or alpha_public: slowness x hetero_tp_alpha (public code).");
  v.optional("objective", s.costs.objective,
             "iteration: slowest pipeline with its fill, gradient synchronization, optimizer; or "
             "steady_public: max of o m alone (public code).");
  v.optional("min_micro_batches", s.costs.minimum,
             "Fewest micro-batches of a pipeline: one, or stages_public: as many as it has stages "
             "(public code).");
  v.optional("stage_order", s.costs.order,
             "paper: weak GPU types first, of a type large groups first [Tables 5, 7, 8]; or "
             "slowest_first_public: by layer time alone (public code).");
  v.optional("memory_reserve_mib", s.costs.memory_reserve_mib,
             "Memory left free on each GPU in the layer program, MiB. [public code: 4096]");
  v.optional(
      "evaluate_top", s.evaluate_top,
      "Plans that the evaluator judges, best first by the estimate; 1: the estimate decides; "
      "0: all that fit.");
  v.between("tensor_parallel", s.tensor, 0, 1'000'000);
  check_power_of_two(v, "tensor_parallel", s.tensor);
  v.between("pipelines", s.pipelines, 0, 1'000'000);
  v.between("micro_batch_size", s.micro_batch, 0, 1'000'000);
  v.between("stage_spread", s.stage_spread, 0, 64);
  v.between("layouts", s.layouts, 1, 1'000'000);
  v.between("hetero_tp_alpha", s.costs.alpha, 1.0, 16.0);
  v.between("memory_reserve_mib", s.costs.memory_reserve_mib, 0, 1'000'000);
  v.between("evaluate_top", s.evaluate_top, 0, 1'000'000);
}

class HetuSearch {
 public:
  HetuSearch(const PlannerInput& input, const HetuSettings& settings)
      : input_(input),
        settings_(settings),
        costs_(std::make_shared<HetuCosts>(input, settings.costs)),
        layers_(count_layers(input.workload)),
        ranking_(input, settings.evaluate_top == 0
                            ? std::size_t{4096}
                            : std::max<std::size_t>(32, settings.evaluate_top)) {}

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
  const HetuSettings& settings_;
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

std::vector<HetuVariant> HetuSearch::variants() const {
  std::vector<int> stages;
  for (const int stage : input_.job.allowed.zero_stages) {
    if (settings_.allows_zero(stage)) stages.push_back(stage);
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

void HetuSearch::make_groups() {
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
    if (settings_.rest != HetuRest::idle && used->count() > 0) groups_.push_back(used);
    if (settings_.rest == HetuRest::use || idle->count() == 0) continue;
    if (differ || settings_.rest == HetuRest::idle) groups_.push_back(idle);
  }
}

std::pair<int, int> HetuSearch::stage_range(const HetuGroups& groups, int pipelines) const {
  const int total = groups.count();
  return {std::max(1, total / pipelines - settings_.stage_spread),
          std::min(layers_, (total + pipelines - 1) / pipelines + settings_.stage_spread)};
}

/// Best first: no layout of a combination is faster than its bound.
std::vector<HetuSearch::Combination> HetuSearch::combinations() {
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
bool HetuSearch::has_room(const Combination& c) {
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

const Deals& HetuSearch::deals(const Combination& c) {
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
bool HetuSearch::search(const Combination& c) {
  const std::shared_ptr<const HetuGroups> groups = groups_[c.groups];
  for (const Deal& deal : deals(c).deals) {
    if (must_end(input_, report_.work)) {
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

models::Infeasible HetuSearch::nothing() const {
  const models::Allowed& allowed = input_.job.allowed;
  const bool zero = std::any_of(allowed.zero_stages.begin(), allowed.zero_stages.end(),
                                [&](int stage) { return settings_.allows_zero(stage); });
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
  if (without_room_ > 0) return {kDeviceMemory, witness_};
  return {"pipelines",
          fmt::format("no number of pipelines over {} devices has 1 to {} stages each, a batch of "
                      "{} to share and a schedule that the job allows",
                      input_.devices.size(), layers_, input_.job.global_batch)};
}

PlannerResult HetuSearch::run() {
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
  return ranking_.finish("hetu", settings_.evaluate_top, report_, nothing());
}

}  // namespace

extern const PlannerEntry kHetu;

const PlannerEntry kHetu = planner_entry<SearchPlanner<HetuSearch, HetuSettings>>(
    "hetu", "Hetu v2, sections 5.4 and A.2-A.3; integer programs as in its public code",
    "tensor-parallel degree, odd groups of nodes, pipelines of uneven length, layers per stage, "
    "micro-batches per pipeline, micro-batch size, recompute, ZeRO-0 or 1",
    "embedding and head in the layer program (the estimate counts them), contention between flows, "
    "the placement of states that are already there",
    hetu_estimate);

}  // namespace orrery::planners
