#include "planners/kit/data_parallel_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "models/schedule/schedule.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"

namespace orrery::planners {
namespace {

class DataParallelRun {
 public:
  DataParallelRun(const DataParallelSearch& search, const PlannerInput& input)
      : search_(search),
        input_(input),
        plans_(std::make_shared<DataParallel>(input, search.ulysses)) {}

  PlannerResult go();

 private:
  std::optional<models::Infeasible> refuse();
  PlannerResult sweep(const std::vector<DataParallelSetting>& legal, bool idle);
  PlannerResult largest();
  std::vector<int> shard_groups(const DataParallelSetting& degrees, int zero) const;
  models::Infeasible nothing(bool idle) const;

  const DataParallelSearch& search_;
  const PlannerInput& input_;
  std::shared_ptr<DataParallel> plans_;
  std::vector<int> zero_stages_;
  std::vector<ir::Recompute> recompute_;
  SearchReport report_;
};

bool leaves(RecomputeChoice choice, ir::Recompute recompute) {
  switch (choice) {
    case RecomputeChoice::search:
      return true;
    case RecomputeChoice::none:
      return recompute == ir::Recompute::none;
    case RecomputeChoice::selective:
      return recompute == ir::Recompute::selective;
    case RecomputeChoice::full:
      return recompute == ir::Recompute::full;
  }
  return false;
}

/// What the job forbids whatever the degrees.
std::optional<models::Infeasible> DataParallelRun::refuse() {
  const models::Allowed& allowed = input_.job.allowed;
  for (const int stage : search_.zero_stages) {
    const auto& stages = allowed.zero_stages;
    if (std::find(stages.begin(), stages.end(), stage) != stages.end()) {
      zero_stages_.push_back(stage);
    }
  }
  if (zero_stages_.empty()) {
    return models::Infeasible{
        "ZeRO stage", fmt::format("{} with ZeRO {} needs a job that allows it; this one allows {}",
                                  search_.planner, fmt::join(search_.zero_stages, " or "),
                                  fmt::join(allowed.zero_stages, ", "))};
  }
  for (const ir::Recompute recompute : allowed.recompute) {
    if (leaves(search_.settings.recompute, recompute)) recompute_.push_back(recompute);
  }
  if (recompute_.empty()) {
    return models::Infeasible{"recompute",
                              "the job allows none of the recompute that is asked for"};
  }
  if (models::plain_schedules(input_.job.allowed.schedules).empty()) {
    return models::Infeasible{"schedule",
                              "the job allows no schedule that works without virtual stages"};
  }
  return std::nullopt;
}

std::vector<int> DataParallelRun::shard_groups(const DataParallelSetting& degrees, int zero) const {
  if (zero == 0) return {0};
  const int ranks = degrees.data_parallel * degrees.sequence_degree;
  if (search_.shard_group > 0) {
    if (ranks % search_.shard_group != 0) return {};
    return {search_.shard_group};
  }
  std::vector<int> result;
  if (search_.sharding != Sharding::hybrid) result.push_back(0);
  const int node = plans_->node_shard_group(degrees);
  if (search_.sharding == Sharding::full || node == 0) return result;
  if (result.empty() || node < ranks) result.push_back(node);
  return result;
}

models::Infeasible DataParallelRun::nothing(bool idle) const {
  if (!report_.complete) return {"work budget", "the search was ended before the first plan"};
  if (!plans_->legal(idle, search_.settings.forced).empty()) {
    return {"shard groups",
            fmt::format("{} devices are not whole shard groups of {}", input_.devices.size(),
                        search_.shard_group > 0 ? std::to_string(search_.shard_group)
                                                : "equally large nodes")};
  }
  if (search_.settings.forced.any()) return plans_->not_expressible(search_.settings.forced);
  return {"equal batches",
          fmt::format("no data-parallel degree over {}{} devices divides a batch of {}",
                      idle ? "up to " : "", input_.devices.size(), input_.job.global_batch)};
}

PlannerResult DataParallelRun::sweep(const std::vector<DataParallelSetting>& legal, bool idle) {
  Ranking ranking(input_);
  for (const DataParallelSetting& degrees : legal) {
    for (const int zero : zero_stages_) {
      for (const int group : shard_groups(degrees, zero)) {
        for (const ir::Recompute recompute : recompute_) {
          if (!report_.complete) break;
          if (must_end(input_, report_.work)) {
            report_.complete = false;
            break;
          }
          ++report_.work;
          ++report_.plans_examined;
          DataParallelSetting setting = degrees;
          setting.zero = zero;
          setting.shard_group = group;
          setting.recompute = recompute;
          ranking.offer(
              plans_->estimate(setting),
              [plans = plans_, setting] { return plans->build(setting); },
              [plans = plans_, setting] { return plans->describe(setting); });
        }
      }
    }
  }
  return ranking.finish(search_.planner, search_.settings.evaluate_top, report_, nothing(idle));
}

/// Numbers of devices from all downwards, until one has a legal plan that fits. The estimate
/// decides only among plans on equally many, so that more devices of the same kind never mean fewer
/// in use.
PlannerResult DataParallelRun::largest() {
  std::map<int, std::vector<DataParallelSetting>, std::greater<>> by_ranks;
  by_ranks[static_cast<int>(input_.devices.size())] = {};  // For the reason against all.
  for (const DataParallelSetting& degrees : plans_->legal(true, search_.settings.forced)) {
    by_ranks[degrees.data_parallel * degrees.sequence_degree].push_back(degrees);
  }
  std::optional<models::Infeasible> first;
  std::optional<models::Infeasible> memory;
  PlannerResult result;
  for (const auto& [ranks, legal] : by_ranks) {
    const bool all = ranks == std::ssize(input_.devices);
    if (!all) {
      report_.notes = {fmt::format("no plan over all {} devices ({}: {}): {} stay idle",
                                   input_.devices.size(), first->constraint, first->witness,
                                   std::ssize(input_.devices) - ranks)};
    }
    result = sweep(legal, !all || by_ranks.size() == 1);
    const auto* no = std::get_if<models::Infeasible>(&result.outcome);
    if (no == nullptr || !result.report.complete) return result;
    if (!first) first = *no;
    if (no->constraint == kDeviceMemory) memory = *no;
    report_.work = report_.plans_examined = result.report.plans_examined;
    report_.rejected_by_memory = result.report.rejected_by_memory;
    report_.constraints = result.report.constraints;
  }
  if (memory) result.outcome = *memory;
  return result;
}

PlannerResult DataParallelRun::go() {
  report_.work_unit = "plans";
  if (const auto no = refuse()) return {*no, report_};
  // A forced number of replicas says by itself how many devices there are.
  const bool any =
      search_.settings.use_all == UseAllDevices::no || search_.settings.forced.data_parallel > 0;
  if (search_.settings.use_all == UseAllDevices::automatic && !any) return largest();
  return sweep(plans_->legal(any, search_.settings.forced), any);
}

}  // namespace

ir::EnumNames<Sharding> enum_names(Sharding) {
  return {{Sharding::full, "full"}, {Sharding::hybrid, "hybrid"}, {Sharding::both, "both"}};
}
ir::EnumNames<RecomputeChoice> enum_names(RecomputeChoice) {
  return {{RecomputeChoice::search, "search"},
          {RecomputeChoice::none, "none"},
          {RecomputeChoice::selective, "selective"},
          {RecomputeChoice::full, "full"}};
}

void describe(config::Visitor& v, DataParallelSettings& s) {
  v.optional(
      "data_parallel", s.forced.data_parallel,
      "Replicas, 0: search. What does not divide the batch is answered with the nearest that "
      "does. [Hetu v2, Tables 4, 6, 9]");
  v.optional("micro_batch_size", s.forced.micro_batch_size,
             "Samples per micro-batch (bs), 0: search.");
  v.optional("recompute", s.recompute,
             "search: all that the job allows; or none, selective, full (AC).");
  v.optional("use_all", s.use_all,
             "yes: only plans over all devices. no: over any number of them, the best by the "
             "estimate. auto: over as many as any legal plan that fits in memory uses (all, where "
             "batch and heads divide), the best of those: as the papers' baselines, which leave no "
             "healthy node idle [Hetu v2, Tables 4 and 6]. The devices are the first of the nodes "
             "with most devices, in the order of the nodes, whatever their types.");
  v.optional(
      "evaluate_top", s.evaluate_top,
      "Plans that the evaluator judges, best first by the estimate; 1: the estimate decides; "
      "0: all that fit.");
  v.between("data_parallel", s.forced.data_parallel, 0, 1'000'000);
  v.between("micro_batch_size", s.forced.micro_batch_size, 0, 1'000'000);
  v.between("evaluate_top", s.evaluate_top, 0, 1'000'000);
}

PlannerResult run(const DataParallelSearch& search, const PlannerInput& input) {
  return DataParallelRun(search, input).go();
}

}  // namespace orrery::planners
