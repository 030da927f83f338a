#include "planners/autohet/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "models/schedule/schedule.h"
#include "planners/autohet/costs.h"
#include "planners/autohet/mapping.h"
#include "planners/kit/grouping.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"

namespace orrery::planners {
namespace {

using Settings = AutohetSettings;

constexpr const char* kGroupMemory = "memory of a device group (Eq. 3b)";
constexpr const char* kTensorInNode = "TP dimension divides the GPUs of every node";
constexpr const char* kLayerMemory = "memory of the stages (Eq. 4c)";

const char* in_words(ir::Recompute recompute) {
  switch (recompute) {
    case ir::Recompute::none:
      return "";
    case ir::Recompute::selective:
      return ", selective recompute";
    case ir::Recompute::full:
      return ", full recompute";
  }
  return "";
}

class Search {
 public:
  Search(const PlannerInput& input, const Settings& settings)
      : input_(input), settings_(settings), costs_(input), ranking_(input) {}
  PlannerResult run(const char* name);

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
  const Settings& settings_;
  StageCosts costs_;
  Ranking ranking_;
  SearchReport report_;
};

std::vector<int> Search::sizes() const {
  std::vector<int> result;
  for (const std::int64_t size : divisors(input_.job.global_batch)) {
    if (size > input_.job.allowed.max_micro_batch_size) break;
    if (settings_.micro_batch_size == 0 || size == settings_.micro_batch_size) {
      result.push_back(static_cast<int>(size));
    }
  }
  return result;
}

std::vector<ir::Recompute> Search::recomputes() const {
  if (settings_.recompute == Settings::RecomputeChoice::least) {
    return {weakest_recompute(input_.job)};
  }
  if (settings_.recompute == Settings::RecomputeChoice::most) {
    return {strongest_recompute(input_.job)};
  }
  std::vector<ir::Recompute> modes = input_.job.allowed.recompute;
  std::sort(modes.begin(), modes.end());
  modes.erase(std::unique(modes.begin(), modes.end()), modes.end());
  if (modes.empty()) modes.push_back(ir::Recompute::none);
  return modes;
}

/// Valid TP dimensions [Algorithm 1, line 2].
std::vector<int> Search::tensors() {
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

void Search::forbid(const char* constraint, std::int64_t times, std::string witness) {
  for (ConstraintCost& cost : report_.constraints) {
    if (cost.constraint != constraint) continue;
    cost.rejected += times;
    return;
  }
  report_.constraints.push_back({constraint, times, std::nullopt, std::move(witness)});
}

/// Work that may still be done; none in a canceled search.
std::int64_t Search::budget_left() const {
  if (canceled(input_)) return 0;
  if (input_.work_budget == 0) return std::numeric_limits<std::int64_t>::max();
  return input_.work_budget - report_.work;
}

GroupingProblem Search::problem(const AutohetCosts& costs, const AutohetRound& round) const {
  GroupingProblem problem;
  const std::int64_t total = input_.job.global_batch / round.micro_batch_size;
  const std::int64_t k = settings_.micro_batches > 0 ? settings_.micro_batches : total;
  problem.micro_batches =
      static_cast<int>(std::min<std::int64_t>(k, std::numeric_limits<int>::max()));
  const auto units = static_cast<std::int64_t>(costs.units().size());
  problem.most_units = costs_.layers();
  problem.most_groups = static_cast<int>(std::min(units, total));
  problem.least_groups = static_cast<int>((units + costs_.layers() - 1) / costs_.layers());
  const bool stages = settings_.group_memory == Settings::GroupMemory::stages;
  // With ZeRO a group needs less the more groups there are: the least need is a valid bound.
  problem.least_memory =
      stages ? costs_.layers() : costs.least_group_memory(problem.most_groups).value;
  for (int kind = 0; kind < static_cast<int>(costs.kinds().size()); ++kind) {
    problem.counts.push_back(costs.kinds()[static_cast<std::size_t>(kind)].count);
    problem.power.push_back(costs.kinds()[static_cast<std::size_t>(kind)].power);
    problem.memory.push_back(stages ? costs.unit_layers(kind, problem.most_groups)
                                    : std::max(0.0, costs.unit_memory(kind).value));
  }
  if (stages) {
    problem.admits = [&costs](const UnitCounts& group, int groups) {
      return costs.fits(group, groups);
    };
  }
  if (settings_.grouping == Settings::Grouping::off) problem.most_groups = 1;
  return problem;
}

void Search::search(const AutohetRound& round) {
  const AutohetCosts costs(input_, settings_, round, costs_,
                           *autohet_units(input_, round.tensor, settings_.tensor_links));
  GroupingProblem whole = problem(costs, round);
  for (const double power : whole.power) {
    if (!(power > 0) || !std::isfinite(power)) return;
  }
  if (settings_.grouping != Settings::Grouping::every_count) {
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
std::string Search::no_group(const GroupingProblem& problem, const AutohetCosts& costs,
                             const std::string& where) const {
  Bytes have;
  Bytes largest;
  for (int kind = 0; kind < static_cast<int>(problem.counts.size()); ++kind) {
    const Bytes unit = std::max(Bytes{}, costs.unit_memory(kind));
    have = have + static_cast<double>(problem.counts[static_cast<std::size_t>(kind)]) * unit;
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

void Search::group(const GroupingProblem& problem, const AutohetCosts& costs,
                   const AutohetRound& round) {
  GroupingLimits limits;
  limits.most_work = budget_left();
  if (limits.most_work == 0) {
    report_.complete = false;
    return;
  }
  if (settings_.search_limit > 0) {
    limits.most_work = std::min(limits.most_work, settings_.search_limit);
  }
  if (settings_.search_limit > 0) {
    limits.first_share = std::max<std::int64_t>(1, settings_.search_limit / 64);
  }
  limits.most_ties = settings_.ties;
  limits.stop = [this] { return canceled(input_); };
  const GroupingResult found = best_groupings(problem, limits);
  report_.work += found.work;
  const std::string where = fmt::format("TP {}, micro-batch {}{}", round.tensor,
                                        round.micro_batch_size, in_words(round.recompute));
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

void Search::offer(const std::vector<UnitCounts>& given, const GroupingProblem& problem,
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

ir::Plan Search::build(const std::vector<AutohetPipeline>& pipelines,
                       const std::vector<AutohetUnit>& units, const AutohetRound& round) const {
  ir::Plan plan;
  plan.schedule = round.schedule;
  plan.communication.activation_transfer = settings_.transfer;
  for (const AutohetPipeline& pipeline : pipelines) {
    ir::Pipeline chain;
    chain.micro_batch_size = round.micro_batch_size;
    chain.micro_batches = pipeline.micro_batches;
    int first = 0;
    for (std::size_t s = 0; s < pipeline.units.size(); ++s) {
      ir::Segment segment = segment_of_layers(input_.workload, first, pipeline.layers[s]);
      first += pipeline.layers[s];
      ir::Group group;
      group.devices = units[static_cast<std::size_t>(pipeline.units[s])].devices;
      group.tensor_parallel = round.tensor;
      group.sequence = round.sequence;
      group.samples = round.micro_batch_size;
      segment.groups.push_back(std::move(group));
      segment.recompute = round.recompute;
      segment.zero.stage = round.zero;
      chain.stages.push_back({{std::move(segment)}});
    }
    plan.pipelines.push_back(std::move(chain));
  }
  return plan;
}

/// "TP 2 x DP 2, micro-batch 1: 1 x {1 H800}, 1 x {2 A100}".
std::string Search::describe(const std::vector<AutohetPipeline>& pipelines,
                             const std::vector<AutohetUnit>& units,
                             const AutohetRound& round) const {
  std::vector<std::pair<std::string, int>> shapes;
  for (const AutohetPipeline& pipeline : pipelines) {
    std::vector<std::pair<std::string, int>> stages;
    for (const int unit : pipeline.units) {
      const DeviceId leader = units[static_cast<std::size_t>(unit)].devices.front();
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
                     round.micro_batch_size, in_words(round.recompute), text);
}

PlannerResult Search::run(const char* name) {
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
        round.sequence = tensor > 1 && input_.job.allowed.sequence_parallel
                             ? ir::SequenceParallelism::megatron
                             : ir::SequenceParallelism::none;
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
  return ranking_.finish(name, settings_.evaluate_top, std::move(report_), std::move(none));
}

}  // namespace

PlannerResult search_autohet(const PlannerInput& input, const AutohetSettings& settings,
                             const char* name) {
  return Search(input, settings).run(name);
}

}  // namespace orrery::planners
