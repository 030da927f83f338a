// Brute force for tiny inputs, the oracle for all other planners: every way to put the devices, or
// some of them, into pipelines of stages of tensor-parallel groups, with every split of the blocks,
// micro-batch size, share of the batch, recomputation and ZeRO stage that the job allows, judged by
// PlanEstimator. What is not enumerated is left out by proof:
// - renamings of interchangeable devices (exhaustive_space.h);
// - choices that another one beats in the estimate and in memory: GPipe where 1F1B is allowed,
//   ZeRO 0 and 1 where a higher stage up to 2 is, split norms off where they are allowed,
//   leader broadcast where slicing is faster between all groups;
// - whole structures, and splits of some of their pipelines, by admissible lower bounds
//   (exhaustive_search.h).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/exhaustive/search.h"
#include "planners/kit/options.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {

extern const PlannerEntry kExhaustive;

namespace {

using exhaustive::CommonChoice;
using exhaustive::ExhaustiveSearch;
using exhaustive::ExhaustiveSettings;
using exhaustive::Space;

/// Beyond these the search would not get anywhere in its default budget.
constexpr std::size_t kMostDevices = 512;
constexpr std::int64_t kMostSamples = 4096;
std::vector<OptionInfo> options() {
  return {
      {"most_plans", "40000",
       "Plans to look at, a split of one pipeline's blocks and a combination of splits of all "
       "pipelines counting as one each; so that the search ends on any cluster. A work budget "
       "below it wins."},
      {"most_structures", "200000",
       "Device structures (sets of pipelines of stages of groups) to make, those with fewer "
       "pipelines and fewer stages first."},
      {"groups_per_stage", "6", "Most tensor-parallel groups of a stage, 1 to 64."},
      {"evaluate_top", "1",
       "Plans that the evaluator judges, best first by the estimate; 1: the estimate decides; 0: "
       "all, without bounds."},
  };
}

/// Choices for the whole plan that no other allowed one beats in both estimate and memory.
std::vector<CommonChoice> common_choices(const PlannerInput& input, const Space& space) {
  const std::vector<ir::ScheduleKind> schedules =
      models::plain_schedules(input.job.allowed.schedules);
  if (schedules.empty()) return {};
  CommonChoice common;
  common.schedule = schedules.front();
  for (const ir::ScheduleKind kind :
       {ir::ScheduleKind::zero_bubble, ir::ScheduleKind::one_f_one_b}) {
    if (std::find(schedules.begin(), schedules.end(), kind) != schedules.end()) {
      common.schedule = kind;
    }
  }
  std::vector<int> zero;
  int highest = -1;
  for (const int stage : input.job.allowed.zero_stages) {
    if (stage >= 0 && stage <= 2) highest = std::max(highest, stage);
  }
  if (highest >= 0) zero.push_back(highest);
  const auto& allowed = input.job.allowed.zero_stages;
  if (std::find(allowed.begin(), allowed.end(), 3) != allowed.end()) zero.push_back(3);
  std::vector<ir::ActivationTransfer> transfers{ir::ActivationTransfer::sliced};
  if (!exhaustive::slicing_wins(input, space)) {
    transfers.push_back(ir::ActivationTransfer::leader_broadcast);
  }
  std::vector<CommonChoice> result;
  for (const int stage : zero) {
    for (const ir::ActivationTransfer transfer : transfers) {
      common.zero = stage;
      common.transfer = transfer;
      result.push_back(common);
    }
  }
  return result;
}

/// What no search could get past.
std::optional<models::Infeasible> impossible(const PlannerInput& input) {
  const models::Allowed& allowed = input.job.allowed;
  const std::size_t devices = input.devices.size();
  if (devices == 0) return models::Infeasible{"devices", "no device may be used"};
  if (input.job.global_batch < 1) {
    return models::Infeasible{"global batch",
                              fmt::format("a batch of {} samples", input.job.global_batch)};
  }
  if (allowed.max_micro_batch_size < 1) {
    return models::Infeasible{"micro-batch size", fmt::format("the job allows at most {} samples",
                                                              allowed.max_micro_batch_size)};
  }
  if (allowed.recompute.empty()) {
    return models::Infeasible{"recompute", "the job allows no recompute setting, not even none"};
  }
  if (models::plain_schedules(input.job.allowed.schedules).empty()) {
    return models::Infeasible{"schedule", "the job allows no schedule without virtual stages"};
  }
  if (devices > kMostDevices || input.job.global_batch > kMostSamples) {
    return models::Infeasible{
        "size of the search",
        fmt::format("{} devices and {} samples: brute force takes at most {} and {}", devices,
                    input.job.global_batch, kMostDevices, kMostSamples)};
  }
  return std::nullopt;
}

class Exhaustive final : public Planner {
 public:
  explicit Exhaustive(ExhaustiveSettings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override;

 private:
  ExhaustiveSettings settings_;
};

PlannerResult Exhaustive::plan(const PlannerInput& input) const {
  SearchReport report;
  report.work_unit = "plans";
  if (auto no = impossible(input)) {
    report.complete = no->constraint != "size of the search";
    return {*std::move(no), std::move(report)};
  }
  const Space space = exhaustive::make_space(input, settings_.limits);
  const std::vector<CommonChoice> commons = common_choices(input, space);
  if (commons.empty()) {
    return {models::Infeasible{"ZeRO", "the job allows no ZeRO stage from 0 to 3"}, report};
  }
  if (!space.complete) report.complete = false;
  constexpr std::size_t kKept = 4096;
  Ranking ranking(input, kKept);
  std::vector<double> best;
  ExhaustiveSearch search(input, settings_, space, report, ranking, best);
  for (const CommonChoice& common : commons) {
    if (!search.run(common)) break;
  }
  const auto structures = static_cast<std::int64_t>(space.structures.size() * commons.size());
  std::string scope =
      fmt::format("{} devices: {} of {}{} structures were settled", input.devices.size(),
                  search.settled(), space.complete ? "" : "more than ", structures);
  report.notes.push_back(scope);
  if (search.refused() > 0) {
    report.constraints.push_back({"device memory", search.refused(), std::nullopt,
                                  "choices of recomputation and samples for a stage"});
    report.rejected_by_memory = search.refused();
  }
  models::Infeasible none{"device memory", ""};
  if (ranking.empty()) {
    if (report.complete) {
      none.witness = "no plan fits; nearest: " + search.squeeze(commons.back());
    } else {
      none = {"size of the search", scope + ", and none of their plans fits in memory"};
    }
  }
  if (input.job.gradient_synchronizations != 1) {
    report.complete = false;
    report.notes.push_back(
        "micro-batches were chosen for one round of gradient synchronization: no proof of the best "
        "plan");
  }
  return ranking.finish(kExhaustive.name, settings_.evaluate_top, std::move(report),
                        std::move(none));
}

std::variant<std::unique_ptr<Planner>, PlannerEntry::BadOption> make(const Options& given) {
  OptionReader reader(options(), given);
  ExhaustiveSettings settings;
  settings.most_plans = reader.integer("most_plans", 1, 1'000'000'000'000);
  settings.limits.structures = reader.integer("most_structures", 1, 100'000'000);
  settings.limits.groups = static_cast<int>(reader.integer("groups_per_stage", 1, 64));
  settings.evaluate_top = static_cast<int>(reader.integer("evaluate_top", 0, 4096));
  if (reader.problem()) return *reader.problem();
  return std::make_unique<Exhaustive>(settings);
}

}  // namespace

const PlannerEntry kExhaustive = {
    "exhaustive",
    "brute force; no paper",
    "all sets of pipelines of stages of tensor-parallel groups inside nodes, idle devices "
    "included, with all splits of the blocks, batch shares, micro-batch sizes, recompute and ZeRO "
    "stages",
    "contention and overlap (its judge is the closed form); plans whose strategy changes inside a "
    "stage; Ulysses and ring attention; virtual stages",
    options,
    make,
};

}  // namespace orrery::planners
