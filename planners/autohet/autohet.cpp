// AutoHet: for each valid TP dimension the grouping of GPUs into pipelines that maximizes D times
// the least effective computing power [Eq. 2 and 3], by exact enumeration over counts of GPUs by
// kind (planners/kit/grouping.h) in place of the paper's SCIP; mapping to nodes and stages
// [Algorithm 1] (mapping.h); layers by exact partition under memory [Eq. 4] with stage
// times from powers of two [Eq. 5] (costs.h); the best by Eq. 1.
//
// Deviation: K of Eq. 2 is the number of micro-batches of the step, also with D pipelines; Eq. 1
// takes what each pipeline really gets. With K / D in Eq. 2 the plans that the paper quotes lose.
// Deviation: where D does not divide the micro-batches, the strongest groups take one more.
// Deviation: a group needs not only the sum of memory of Eq. 3b but a division of the layers that
// fits stage by stage (option group_memory), and no more stages than layers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "models/ir/names.h"
#include "models/schedule/schedule.h"
#include "planners/autohet/costs.h"
#include "planners/autohet/mapping.h"
#include "planners/autohet/settings.h"
#include "planners/catalog.h"
#include "planners/kit/grouping.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"
#include "planners/kit/settings.h"

namespace orrery::planners {

extern const PlannerEntry kAutohet;

ir::EnumNames<AutohetSettings::Grouping> enum_names(AutohetSettings::Grouping) {
  using enum AutohetSettings::Grouping;
  return {{optimum, "optimum"}, {every_count, "every_count"}, {off, "off"}};
}
ir::EnumNames<AutohetSettings::Mapping> enum_names(AutohetSettings::Mapping) {
  using enum AutohetSettings::Mapping;
  return {{on, "on"}, {off, "off"}};
}
ir::EnumNames<AutohetSettings::LoadBalance> enum_names(AutohetSettings::LoadBalance) {
  using enum AutohetSettings::LoadBalance;
  return {{bottleneck, "bottleneck"}, {pipeline, "pipeline"}, {off, "off"}};
}
ir::EnumNames<AutohetSettings::GroupMemory> enum_names(AutohetSettings::GroupMemory) {
  using enum AutohetSettings::GroupMemory;
  return {{stages, "stages"}, {sum, "sum"}};
}
ir::EnumNames<AutohetSettings::Power> enum_names(AutohetSettings::Power) {
  using enum AutohetSettings::Power;
  return {{layer_time, "layer_time"}, {peak, "peak"}};
}
ir::EnumNames<AutohetSettings::LayerTime> enum_names(AutohetSettings::LayerTime) {
  using enum AutohetSettings::LayerTime;
  return {{powers_of_two, "powers_of_two"}, {sum, "sum"}};
}
ir::EnumNames<AutohetSettings::TensorLinks> enum_names(AutohetSettings::TensorLinks) {
  using enum AutohetSettings::TensorLinks;
  return {{node, "node"}, {nvlink, "nvlink"}};
}
ir::EnumNames<AutohetSettings::RecomputeChoice> enum_names(AutohetSettings::RecomputeChoice) {
  using enum AutohetSettings::RecomputeChoice;
  return {{automatic, "auto"}, {least, "least"}, {most, "most"}};
}

void describe(config::Visitor& v, AutohetSettings& s) {
  v.optional("device_grouping", s.grouping,
             "optimum: for each TP dimension the groupings that maximize Eq. 3. every_count: the "
             "best for each number of groups, all judged by Eq. 1. off: one pipeline over all "
             "GPUs, the baseline of V-B.");
  v.optional("mapping", s.mapping,
             "Node and stage mapping (III-C). off: stages and nodes in the order of the cluster "
             "file, the ablation of V-B.");
  v.optional("load_balance", s.load_balance,
             "Layer partition. bottleneck: least longest stage (Eq. 4), then least sum. pipeline: "
             "least time of Eq. 1. off: even shares, the ablation of V-B.");
  v.optional("group_memory", s.group_memory,
             "What a group needs. stages: a division of the layers that fits on each stage. sum: "
             "as Eq. 3b prints it, the sum of its memory holds the model; groupings that Eq. 4c "
             "then refuses are lost.");
  v.optional("power", s.power,
             "g of Eq. 2. layer_time: layers per second of a TP group by the profile (III-D). "
             "peak: sum of peak FLOP/s.");
  v.optional("layer_time", s.layer_time,
             "powers_of_two: n layers take what the powers of two in n take, measured once from "
             "the first layer on (Eq. 5). sum: each layer its own time; differs for unequal "
             "layers only.");
  v.optional("tensor_links", s.tensor_links,
             "A TP dimension is valid if it divides the GPUs of every node (Algorithm 1, line 2); "
             "nvlink: and if NVLink joins every TP group (III-C).");
  v.optional("recompute", s.recompute,
             "auto: every mode that the job allows, judged by Eq. 1; least or most: only that. "
             "The paper does not say.");
  v.optional("micro_batches", s.micro_batches,
             "K of Eq. 2; 0: global batch / micro-batch size. Not divided by the number of "
             "groups.");
  v.optional("micro_batch_size", s.micro_batch_size,
             "Samples; must divide the global batch. 0: every size that the job allows, judged by "
             "Eq. 1. The paper does not say.");
  v.optional("activation_transfer", s.transfer,
             "sliced: scatter-gather of activations between stages, as in Megatron-LM, on which "
             "AutoHet builds; or leader_broadcast.");
  v.optional("ties", s.ties,
             "Most groupings with the same value of Eq. 3 that Eq. 1 judges; at least 1.");
  v.optional("search_limit", s.search_limit,
             "Most partial groupings per TP dimension (and size, recompute); beyond it the best "
             "so far counts and the report tells the proved bound. 0: none.");
  v.optional("evaluate_top", s.evaluate_top,
             "Plans that the evaluator judges, best first by Eq. 1; 1: Eq. 1 decides; 0: all that "
             "fit.");
  v.between("micro_batches", s.micro_batches, std::int64_t{0}, std::int64_t{1'000'000'000});
  v.between("micro_batch_size", s.micro_batch_size, 0, 1'000'000);
  v.between("ties", s.ties, 1, 100'000);
  v.between("search_limit", s.search_limit, std::int64_t{0}, std::int64_t{1} << 50);
  v.between("evaluate_top", s.evaluate_top, 0, 1'000'000);
}

namespace {

constexpr const char* kGroupMemory = "memory of a device group (Eq. 3b)";
constexpr const char* kTensorInNode = "TP dimension divides the GPUs of every node";
constexpr const char* kLayerMemory = "memory of the stages (Eq. 4c)";

/// ", full recompute".
std::string recompute_suffix(ir::Recompute recompute) {
  if (recompute == ir::Recompute::none) return "";
  return fmt::format(", {} recompute", ir::name_of(recompute));
}

/// Rounds over TP dimensions, micro-batch sizes and recomputation; in each the groupings that are
/// best by Eq. 3, mapped, divided into layers and priced by Eq. 1. Work is counted in partial
/// groupings.
class AutohetSearch {
 public:
  AutohetSearch(const PlannerInput& input, const AutohetSettings& settings)
      : input_(input), settings_(settings), costs_(input), ranking_(input) {}
  PlannerResult run();

 private:
  std::vector<int> sizes() const;
  std::vector<ir::Recompute> recomputes() const;
  std::vector<int> tensors();
  void search(const AutohetRound& round);
  GroupingProblem problem(const AutohetCosts& costs, const AutohetRound& round) const;
  void group(const GroupingProblem& problem, const AutohetCosts& costs, const AutohetRound& round);
  std::string no_group(const GroupingProblem& problem, const AutohetCosts& costs,
                       const std::string& where) const;
  void offer(const std::vector<UnitCounts>& groups, const GroupingProblem& problem,
             const AutohetCosts& costs, const AutohetRound& round);
  ir::Plan build(const std::vector<AutohetPipeline>& pipelines,
                 const std::vector<AutohetUnit>& units, const AutohetRound& round) const;
  std::string describe(const std::vector<AutohetPipeline>& pipelines,
                       const std::vector<AutohetUnit>& units, const AutohetRound& round) const;
  void forbid(const char* constraint, std::int64_t times, std::string witness);
  std::int64_t budget_left() const;

  const PlannerInput& input_;
  const AutohetSettings& settings_;
  StageCosts costs_;
  Ranking ranking_;
  SearchReport report_;
};

std::vector<int> AutohetSearch::sizes() const {
  std::vector<int> result;
  for (const std::int64_t size : divisors(input_.job.global_batch)) {
    if (size > input_.job.allowed.max_micro_batch_size) break;
    if (settings_.micro_batch_size == 0 || size == settings_.micro_batch_size) {
      result.push_back(static_cast<int>(size));
    }
  }
  return result;
}

std::vector<ir::Recompute> AutohetSearch::recomputes() const {
  if (settings_.recompute == AutohetSettings::RecomputeChoice::least) {
    return {weakest_recompute(input_.job)};
  }
  if (settings_.recompute == AutohetSettings::RecomputeChoice::most) {
    return {strongest_recompute(input_.job)};
  }
  std::vector<ir::Recompute> modes = input_.job.allowed.recompute;
  std::sort(modes.begin(), modes.end());
  modes.erase(std::unique(modes.begin(), modes.end()), modes.end());
  if (modes.empty()) modes.push_back(ir::Recompute::none);
  return modes;
}

/// Valid TP dimensions [Algorithm 1, line 2].
std::vector<int> AutohetSearch::tensors() {
  std::vector<int> result;
  std::string refused;
  std::int64_t times = 0;
  for (const int tensor :
       tensor_degrees(input_.workload, input_.job, static_cast<int>(input_.devices.size()))) {
    bool in_node = false;
    for (std::size_t n = 0; n < input_.cluster.nodes.size(); ++n) {
      in_node = in_node || static_cast<int>(input_.cluster.nodes[n].gpu_types.size()) >= tensor;
    }
    if (!in_node) break;
    if (autohet_units(input_, tensor, settings_.tensor_links)) {
      result.push_back(tensor);
    } else {
      refused += fmt::format("{}TP {}", refused.empty() ? "" : ", ", tensor);
      ++times;
    }
  }
  if (times > 0) forbid(kTensorInNode, times, refused);
  return result;
}

void AutohetSearch::forbid(const char* constraint, std::int64_t times, std::string witness) {
  for (ConstraintCost& cost : report_.constraints) {
    if (cost.constraint != constraint) continue;
    cost.rejected += times;
    return;
  }
  report_.constraints.push_back({constraint, times, std::nullopt, std::move(witness)});
}

/// Work that may still be done; none in a canceled search.
std::int64_t AutohetSearch::budget_left() const {
  if (canceled(input_)) return 0;
  if (input_.work_budget == 0) return std::numeric_limits<std::int64_t>::max();
  return input_.work_budget - report_.work;
}

GroupingProblem AutohetSearch::problem(const AutohetCosts& costs, const AutohetRound& round) const {
  GroupingProblem problem;
  const std::int64_t total = input_.job.global_batch / round.micro_batch_size;
  const std::int64_t k = settings_.micro_batches > 0 ? settings_.micro_batches : total;
  problem.micro_batches =
      static_cast<int>(std::min<std::int64_t>(k, std::numeric_limits<int>::max()));
  const auto units = static_cast<std::int64_t>(costs.units().size());
  problem.most_units = costs_.layers();
  problem.most_groups = static_cast<int>(std::min(units, total));
  problem.least_groups = static_cast<int>((units + costs_.layers() - 1) / costs_.layers());
  const bool stages = settings_.group_memory == AutohetSettings::GroupMemory::stages;
  // With ZeRO a group needs less the more groups there are: the least need is a valid bound.
  problem.least_memory =
      stages ? costs_.layers() : costs.least_group_memory(problem.most_groups).value;
  for (int kind = 0; kind < static_cast<int>(costs.kinds().size()); ++kind) {
    problem.counts.push_back(costs.kinds()[kind].count);
    problem.power.push_back(costs.kinds()[kind].power);
    problem.memory.push_back(stages ? costs.unit_layers(kind, problem.most_groups)
                                    : std::max(0.0, costs.unit_memory(kind).value));
  }
  if (stages) {
    problem.admits = [&costs](const UnitCounts& group, int groups) {
      return costs.fits(group, groups);
    };
  }
  if (settings_.grouping == AutohetSettings::Grouping::off) problem.most_groups = 1;
  return problem;
}

void AutohetSearch::search(const AutohetRound& round) {
  const AutohetCosts costs(input_, settings_, round, costs_,
                           *autohet_units(input_, round.tensor, settings_.tensor_links));
  GroupingProblem whole = problem(costs, round);
  for (const double power : whole.power) {
    if (!(power > 0) || !std::isfinite(power)) return;
  }
  if (settings_.grouping != AutohetSettings::Grouping::every_count) {
    group(whole, costs, round);
    return;
  }
  GroupingProblem one = whole;
  for (int groups = whole.least_groups; groups <= whole.most_groups; ++groups) {
    one.least_groups = one.most_groups = groups;
    group(one, costs, round);
  }
}

/// Why no group can be formed, in words.
std::string AutohetSearch::no_group(const GroupingProblem& problem, const AutohetCosts& costs,
                                    const std::string& where) const {
  Bytes have;
  Bytes largest;
  for (int kind = 0; kind < static_cast<int>(problem.counts.size()); ++kind) {
    const Bytes unit = std::max(Bytes{}, costs.unit_memory(kind));
    have = have + static_cast<double>(problem.counts[kind]) * unit;
    largest = std::max(largest, unit);
  }
  return fmt::format(
      "{}: no way to deal out {} TP groups to {} to {} pipelines that hold the model on at most {} "
      "stages each: the model needs at least {:.2f} GiB per pipeline, all TP groups have {:.2f} "
      "GiB, the largest {:.2f} GiB",
      where, costs.units().size(), problem.least_groups, problem.most_groups, problem.most_units,
      costs.least_group_memory(problem.most_groups).value / 0x1p30, have.value / 0x1p30,
      largest.value / 0x1p30);
}

void AutohetSearch::group(const GroupingProblem& problem, const AutohetCosts& costs,
                          const AutohetRound& round) {
  GroupingLimits limits;
  limits.most_work = budget_left();
  if (limits.most_work == 0) {
    report_.complete = false;
    return;
  }
  if (settings_.search_limit > 0) {
    limits.most_work = std::min(limits.most_work, settings_.search_limit);
    limits.first_share = std::max<std::int64_t>(1, settings_.search_limit / 64);
  }
  limits.most_ties = settings_.ties;
  limits.stop = [this] { return canceled(input_); };
  const GroupingResult found = best_groupings(problem, limits);
  report_.work += found.work;
  const std::string where = fmt::format("TP {}, micro-batch {}{}", round.tensor,
                                        round.micro_batch_size, recompute_suffix(round.recompute));
  if (found.ended_early) report_.complete = false;
  if (!found.exact) {
    report_.notes.push_back(fmt::format(
        "{}: the search for groups ended after {} partial groupings; {}", where, found.work,
        found.groupings.empty() ? "none was found, none excluded"
                                : fmt::format("Eq. 3 could gain at most {:.2f} %",
                                              100 * (found.bound / found.objective - 1))));
  } else if (!found.all_ties) {
    report_.notes.push_back(
        fmt::format("{}: only {} of the groupings that are best by Eq. 3 were "
                    "judged",
                    where, found.groupings.size()));
  }
  if (found.groupings.empty() && found.exact) {
    forbid(kGroupMemory, 1, no_group(problem, costs, where));
  }
  for (const std::vector<UnitCounts>& groups : found.groupings) {
    offer(groups, problem, costs, round);
  }
}

void AutohetSearch::offer(const std::vector<UnitCounts>& given, const GroupingProblem& problem,
                          const AutohetCosts& costs, const AutohetRound& round) {
  ++report_.plans_examined;
  std::vector<UnitCounts> groups = given;
  std::sort(groups.begin(), groups.end(), [&](const UnitCounts& a, const UnitCounts& b) {
    const double power_a = effective_power(problem, a);
    const double power_b = effective_power(problem, b);
    return power_a != power_b ? power_a > power_b : a > b;
  });
  const auto replicas = static_cast<std::int64_t>(groups.size());
  const std::int64_t total = input_.job.global_batch / round.micro_batch_size;
  if ((total + replicas - 1) / replicas > std::numeric_limits<int>::max()) return;
  std::vector<AutohetPipeline> pipelines;
  Seconds longest;
  for (std::vector<int>& units :
       map_groups(costs.units(), groups, settings_.mapping == AutohetSettings::Mapping::on)) {
    AutohetPipeline pipeline;
    const auto number = static_cast<std::int64_t>(pipelines.size());
    pipeline.micro_batches =
        static_cast<int>(total / replicas + (number < total % replicas ? 1 : 0));
    pipeline.units = std::move(units);
    auto layers =
        costs.partition(pipeline.units, pipeline.micro_batches, static_cast<int>(replicas));
    if (!layers) {
      forbid(kLayerMemory, 1,
             fmt::format("TP {} x DP {}: no division of {} layers over {} stages fits",
                         round.tensor, replicas, costs_.layers(), pipeline.units.size()));
      return;
    }
    pipeline.layers = std::move(*layers);
    longest = std::max(longest, costs.pipeline(pipeline));
    pipelines.push_back(std::move(pipeline));
  }
  const Seconds estimate = longest + costs.synchronization(pipelines);
  if (!ranking_.wants(estimate)) return;
  ranking_.offer(estimate, build(pipelines, costs.units(), round),
                 describe(pipelines, costs.units(), round));
}

ir::Plan AutohetSearch::build(const std::vector<AutohetPipeline>& pipelines,
                              const std::vector<AutohetUnit>& units,
                              const AutohetRound& round) const {
  ir::Plan plan;
  plan.schedule = round.schedule;
  plan.communication.activation_transfer = settings_.transfer;
  for (const AutohetPipeline& pipeline : pipelines) {
    ir::Pipeline chain;
    chain.micro_batch_size = round.micro_batch_size;
    chain.micro_batches = pipeline.micro_batches;
    int first = 0;
    for (std::size_t s = 0; s < pipeline.units.size(); ++s) {
      const AutohetUnit& unit = units[pipeline.units[s]];
      chain.stages.push_back(stage_of_layers(
          input_.workload, first, pipeline.layers[s],
          tensor_groups(unit.devices, round.tensor, round.micro_batch_size, round.sequence),
          round.recompute, round.zero));
      first += pipeline.layers[s];
    }
    plan.pipelines.push_back(std::move(chain));
  }
  return plan;
}

/// "TP 2 x DP 2, micro-batch 1: 1 x {1 H800}, 1 x {2 A100}".
std::string AutohetSearch::describe(const std::vector<AutohetPipeline>& pipelines,
                                    const std::vector<AutohetUnit>& units,
                                    const AutohetRound& round) const {
  std::vector<std::pair<std::string, int>> shapes;
  for (const AutohetPipeline& pipeline : pipelines) {
    std::vector<std::pair<std::string, int>> stages;
    for (const int unit : pipeline.units) {
      const DeviceId leader = units[unit].devices.front();
      const std::string& name = input_.cluster.gpu(leader).name;
      if (stages.empty() || stages.back().first != name) stages.emplace_back(name, 0);
      ++stages.back().second;
    }
    std::string text;
    for (const auto& [name, count] : stages) {
      text += fmt::format("{}{} {}", text.empty() ? "" : " + ", count, name);
    }
    if (shapes.empty() || shapes.back().first != text) shapes.emplace_back(text, 0);
    ++shapes.back().second;
  }
  std::string text;
  for (const auto& [shape, count] : shapes) {
    text += fmt::format("{}{} x {{{}}}", text.empty() ? "" : ", ", count, shape);
  }
  return fmt::format("TP {} x DP {}, micro-batch {}{}: {}", round.tensor, pipelines.size(),
                     round.micro_batch_size, recompute_suffix(round.recompute), text);
}

PlannerResult AutohetSearch::run() {
  report_.work_unit = "partial groupings";
  AutohetRound round;
  const auto schedule = models::preferred_schedule(input_.job.allowed.schedules);
  if (!schedule) {
    return {models::Infeasible{"schedule", "the job allows none without virtual stages"}, report_};
  }
  round.schedule = *schedule;
  round.zero = smallest_zero_stage(input_.job);
  const std::vector<int> all_sizes = sizes();
  if (all_sizes.empty() || input_.devices.empty()) {
    return {models::Infeasible{
                "micro-batch size",
                fmt::format("size {} must divide the global batch of {} and be at most {}, on at "
                            "least one GPU",
                            settings_.micro_batch_size, input_.job.global_batch,
                            input_.job.allowed.max_micro_batch_size)},
            report_};
  }
  for (const int tensor : tensors()) {
    for (const int size : all_sizes) {
      for (const ir::Recompute recompute : recomputes()) {
        round.tensor = tensor;
        round.micro_batch_size = size;
        round.recompute = recompute;
        round.sequence = megatron_sequence(input_.job, tensor);
        search(round);
      }
    }
  }
  models::Infeasible none{"device groups", report_.complete
                                               ? "no TP dimension divides the GPUs of every node"
                                               : "the search was ended before the first plan"};
  for (const ConstraintCost& cost : report_.constraints) {
    if (cost.constraint == kTensorInNode) continue;
    none = {cost.constraint, cost.witness};
    break;
  }
  return ranking_.finish(kAutohet.name, settings_.evaluate_top, std::move(report_),
                         std::move(none));
}

}  // namespace

const PlannerEntry kAutohet = planner_entry<SearchPlanner<AutohetSearch, AutohetSettings>>(
    "autohet", "AutoHet, section III (Eq. 1-5, Algorithm 1)",
    "TP dimensions; for each all divisions of the GPUs into pipelines by counts of kinds, exactly; "
    "stage order, nodes and layers of the best of them",
    "differences of links between GPUs of a kind until Eq. 1, unequal batches of pipelines, TP "
    "dimensions that do not divide every node, idle GPUs",
    autohet_estimate);

}  // namespace orrery::planners
