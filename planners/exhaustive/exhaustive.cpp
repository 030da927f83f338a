// The slow reference for all other planners on tiny inputs: every way to put the devices, or some
// of them, into pipelines of stages of tensor-parallel groups, with every split of the blocks,
// micro-batch size, share of the batch, recomputation and ZeRO stage that the job allows, judged by
// PlanEstimator. Nothing is left out by a bound; these are not looked at one by one:
// - renamings of interchangeable devices (space.h);
// - shares of the batch: once the blocks of all pipelines are fixed, pipelines share nothing but
//   the batch, so each has its least time for every number of samples, and the shares with the
//   least slowest pipeline come from a dynamic program over these;
// - recomputation: it only makes a stage slower, so that each stage has the weakest that fits;
// - ZeRO below the highest allowed stage up to 2: these take equally long and need more memory.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "models/base/ids.h"
#include "models/cost/device_share.h"
#include "models/cost/memory.h"
#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/exhaustive/space.h"
#include "planners/kit/estimate.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"
#include "planners/kit/settings.h"
#include "planners/kit/stage_costs.h"

namespace orrery::planners {

extern const PlannerEntry kExhaustive;

namespace exhaustive {
namespace {

/// Beyond these the search would not get anywhere in its default budget.
constexpr std::size_t kMostDevices = 512;
constexpr std::int64_t kMostSamples = 4096;
/// Plans that the report may name where the estimate decides.
constexpr int kNamed = 8;
constexpr int kMostKept = 4096;
/// Times of pipelines that are kept for other structures with the same pipelines.
constexpr std::size_t kMostTimes = std::size_t{1} << 22;

struct Settings {
  std::int64_t most_plans = 40'000;
  std::int64_t most_structures = 200'000;
  int groups_per_stage = 6;
  int evaluate_top = 1;
};

void describe(config::Visitor& v, Settings& s) {
  v.optional("most_plans", s.most_plans,
             "Plans to look at, a way to run one pipeline and a combination of splits of all "
             "pipelines counting as one each; so that the search ends on any cluster. A work "
             "budget below it wins.");
  v.optional("most_structures", s.most_structures,
             "Device structures (sets of pipelines of stages of groups) to make, those with fewer "
             "pipelines and fewer stages first.");
  v.optional("groups_per_stage", s.groups_per_stage,
             "Most tensor-parallel groups of a stage, 1 to 64.");
  v.optional("evaluate_top", s.evaluate_top,
             "Plans that the evaluator judges, best first by the estimate; 1: the estimate "
             "decides; 0: all that are kept (4,096).");
  v.between("most_plans", s.most_plans, std::int64_t{1}, std::int64_t{1'000'000'000'000});
  v.between("most_structures", s.most_structures, std::int64_t{1}, std::int64_t{100'000'000});
  v.between("groups_per_stage", s.groups_per_stage, 1, 64);
  v.between("evaluate_top", s.evaluate_top, 0, kMostKept);
}

/// The fastest ways to run a pipeline of given devices and blocks.
struct Runs {
  std::vector<double> time;             ///< By number of samples; kNever: impossible.
  std::vector<int> made_by;             ///< By number of samples, position in `pipelines`.
  std::vector<ir::Pipeline> pipelines;  ///< Without their number of micro-batches.
};

class Search {
 public:
  Search(const PlannerInput& input, const Settings& settings)
      : input_(input),
        settings_(settings),
        batch_(static_cast<int>(input.job.global_batch)),
        recomputes_(input.job.allowed.recompute),
        estimator_(input),
        costs_(input),
        ranking_(input,
                 settings.evaluate_top == 0 ? kMostKept : std::max(kNamed, settings.evaluate_top)) {
    std::sort(recomputes_.begin(), recomputes_.end());
    report_.work_unit = "plans";
  }

  PlannerResult run();

 private:
  std::optional<models::Infeasible> impossible() const;
  std::vector<ir::Plan> commons() const;
  void order_structures();
  bool examine(const ir::Plan& common, const Parts& structure);
  bool split_blocks(std::size_t pipeline);
  bool judge();
  std::vector<int> replicas() const;
  std::vector<int> best_shares(const std::vector<const Runs*>& runs) const;
  const Runs& runs(std::size_t pipeline, const std::vector<int>& replicas);
  void divide(Runs& runs, ir::Pipeline& chain, std::size_t stage, std::size_t group, int left);
  void try_counts(Runs& runs, ir::Pipeline& chain);
  bool recompute(ir::Pipeline& chain, int micro_batches);
  double need(const ir::Pipeline& chain, std::size_t stage, int micro_batches) const;
  bool spend();

  const PlannerInput& input_;
  const Settings& settings_;
  int batch_;
  std::vector<ir::Recompute> recomputes_;  ///< Allowed, weakest first.
  PlanEstimator estimator_;
  StageCosts costs_;
  Ranking ranking_;
  SearchReport report_;
  Space space_;
  double least_need_ = kNever;  ///< Of pipelines that do not fit; over what their device has.
  std::string nearest_;         ///< That pipeline's tightest stage, in words.

  // The structure in hand.
  const Parts* structure_ = nullptr;
  ir::Plan plan_;
  std::vector<std::vector<int>> splits_;  ///< Blocks by stage of each pipeline.
  std::vector<int> replicas_;             ///< Of each block, among which ZeRO divides.
  std::map<std::vector<int>, Runs> known_;
};

/// Counts a plan; false when the budget is spent.
bool Search::spend() {
  std::int64_t most = settings_.most_plans;
  if (input_.work_budget > 0) most = std::min(most, input_.work_budget);
  if (report_.work >= most || canceled(input_)) {
    report_.complete = false;
    return false;
  }
  ++report_.work;
  return true;
}

/// Need over capacity of the tightest device of a stage. [check_memory]
double Search::need(const ir::Pipeline& chain, std::size_t stage, int micro_batches) const {
  const ir::Segment& segment = chain.stages[stage].segments.front();
  const int index = static_cast<int>(stage);
  const bool splits = models::schedule_entry(plan_.schedule).splits_backward();
  double worst = 0;
  for (const ir::Group& group : segment.groups) {
    const models::SegmentMemory memory = models::segment_memory(
        segment, group, [&](BlockId block) { return replicas_[block.index()]; }, input_.workload,
        input_.job);
    const int in_flight = models::micro_batches_in_flight(
        plan_.schedule, static_cast<int>(chain.stages.size()), index, micro_batches, 1);
    const Bytes recomputed =
        splits ? std::min(micro_batches, index + 1) * memory.recomputed_kept : memory.recomputed;
    const Bytes peak = memory.states() + in_flight * memory.activations_per_micro_batch +
                       recomputed + memory.logits + memory.communication;
    for (const DeviceId device : group.devices) {
      const Bytes have = costs_.capacity(input_.cluster.device(device).gpu_type);
      worst = std::max(worst, have.value > 0 ? peak / have : kNever);
    }
  }
  return worst;
}

/// Gives every stage the weakest recomputation that fits; false where none does.
bool Search::recompute(ir::Pipeline& chain, int micro_batches) {
  double tightest = 0;
  std::size_t where = 0;
  for (std::size_t s = 0; s < chain.stages.size(); ++s) {
    double least = kNever;
    for (const ir::Recompute kind : recomputes_) {
      chain.stages[s].segments.front().recompute = kind;
      least = std::min(least, need(chain, s, micro_batches));
      if (least <= 1) break;
    }
    if (least > tightest) {
      tightest = least;
      where = s;
    }
  }
  if (tightest <= 1) return true;
  ++report_.rejected_by_memory;
  if (tightest < least_need_) {
    least_need_ = tightest;
    const ir::Segment& segment = chain.stages[where].segments.front();
    nearest_ =
        fmt::format("a stage of blocks {} to {} of {} on {} needs {:.2f} times what it has",
                    segment.first_block.value, segment.last_block.value, input_.workload.size(),
                    input_.cluster.gpu(segment.groups.front().devices.front()).name, tightest);
  }
  return false;
}

/// All numbers of micro-batches.
void Search::try_counts(Runs& runs, ir::Pipeline& chain) {
  if (!spend()) return;
  const int stages = static_cast<int>(chain.stages.size());
  std::vector<models::StageTime> times;
  bool changed = true;
  for (int count = 1; count * chain.micro_batch_size <= batch_; ++count) {
    // Beyond as many micro-batches as stages nothing more is in flight, but under GPipe.
    if (count <= stages || models::schedule_entry(plan_.schedule).holds_whole_batch()) {
      if (!recompute(chain, count)) return;
      times = estimator_.stages(plan_, chain);
      changed = true;
    }
    const double time = PlanEstimator::pipeline(plan_, times, count).value;
    const std::size_t samples = count * chain.micro_batch_size;
    if (!(time < runs.time[samples])) continue;
    if (std::exchange(changed, false)) runs.pipelines.push_back(chain);
    runs.time[samples] = time;
    runs.made_by[samples] = static_cast<int>(runs.pipelines.size()) - 1;
  }
}

/// All ways to give the groups from `group` of `stage` on the samples of a micro-batch, of which
/// the groups of this stage still lack `left`.
void Search::divide(Runs& runs, ir::Pipeline& chain, std::size_t stage, std::size_t group,
                    int left) {
  if (stage == chain.stages.size()) return try_counts(runs, chain);
  std::vector<ir::Group>& groups = chain.stages[stage].segments.front().groups;
  if (group == groups.size()) {
    if (left == 0) divide(runs, chain, stage + 1, 0, chain.micro_batch_size);
    return;
  }
  const int others = static_cast<int>(groups.size() - group) - 1;
  const int most = std::min(left - others, input_.job.allowed.max_micro_batch_size);
  for (int samples = 1; samples <= most && report_.complete; ++samples) {
    groups[group].samples = samples;
    divide(runs, chain, stage, group + 1, left - samples);
  }
}

const Runs& Search::runs(std::size_t pipeline, const std::vector<int>& replicas) {
  std::vector<int> key = splits_[pipeline];
  key.push_back(structure_->parts[pipeline]);
  key.insert(key.end(), replicas.begin(), replicas.end());
  const auto [known, added] = known_.try_emplace(std::move(key));
  Runs& result = known->second;
  if (!added) return result;
  result.time.assign(batch_ + 1, kNever);
  result.made_by.assign(batch_ + 1, -1);
  ir::Pipeline chain = plan_.pipelines[pipeline];
  for (int size = 1; size <= batch_ && report_.complete; ++size) {
    chain.micro_batch_size = size;
    divide(result, chain, 0, 0, size);
  }
  return result;
}

/// Groups that hold each block.
std::vector<int> Search::replicas() const {
  std::vector<int> result(input_.workload.size(), 0);
  for (const ir::Pipeline& chain : plan_.pipelines) {
    for (const ir::Stage& stage : chain.stages) {
      const ir::Segment& segment = stage.segments.front();
      for (BlockId b = segment.first_block; b <= segment.last_block; ++b.value) {
        result[b.index()] += static_cast<int>(segment.groups.size());
      }
    }
  }
  return result;
}

/// Samples of each pipeline that make the slowest one fastest; empty if nothing adds up.
std::vector<int> Search::best_shares(const std::vector<const Runs*>& runs) const {
  // By pipeline and samples of those before it: their least slowest time.
  std::vector<std::vector<double>> before(runs.size() + 1, std::vector<double>(batch_ + 1));
  std::vector<std::vector<int>> share(runs.size() + 1, std::vector<int>(batch_ + 1, 0));
  for (std::vector<double>& each : before) std::fill(each.begin(), each.end(), kNever);
  before[0][0] = 0;
  for (std::size_t p = 0; p < runs.size(); ++p) {
    for (int n = 0; n <= batch_; ++n) {
      if (before[p][n] == kNever) continue;
      // All that is left goes to the last pipeline.
      for (int own = p + 1 == runs.size() ? batch_ - n : 1; n + own <= batch_; ++own) {
        const double time = std::max(before[p][n], runs[p]->time[own]);
        if (!(time < before[p + 1][n + own])) continue;
        before[p + 1][n + own] = time;
        share[p + 1][n + own] = own;
      }
    }
  }
  if (before.back()[batch_] == kNever) return {};
  std::vector<int> result(runs.size(), 0);
  int left = batch_;
  for (std::size_t p = runs.size(); p-- > 0;) {
    result[p] = share[p + 1][left];
    left -= result[p];
  }
  return result;
}

/// The best plan with the blocks that all pipelines have now. False when the budget ended.
bool Search::judge() {
  if (!spend()) return false;
  replicas_ = replicas();
  std::vector<const Runs*> all;
  const bool sharded = plan_.pipelines.front().stages.front().segments.front().zero.stage > 0;
  for (std::size_t p = 0; p < plan_.pipelines.size(); ++p) {
    all.push_back(&runs(p, sharded ? replicas_ : std::vector<int>{}));
  }
  const std::vector<int> shares = best_shares(all);
  if (shares.empty()) return report_.complete;
  double slowest = 0;
  for (std::size_t p = 0; p < all.size(); ++p) {
    slowest = std::max(slowest, all[p]->time[shares[p]]);
  }
  ++report_.plans_examined;
  if (!ranking_.wants(Seconds{slowest})) return report_.complete;  // Gradients are not free.
  ir::Plan plan = plan_;
  for (std::size_t p = 0; p < all.size(); ++p) {
    const ir::Pipeline& best = all[p]->pipelines[all[p]->made_by[shares[p]]];
    ir::Pipeline& chain = plan.pipelines[p];
    chain.micro_batch_size = best.micro_batch_size;
    chain.micro_batches = shares[p] / best.micro_batch_size;
    for (std::size_t s = 0; s < chain.stages.size(); ++s) {
      ir::Segment& segment = chain.stages[s].segments.front();
      const ir::Segment& from = best.stages[s].segments.front();
      segment.recompute = from.recompute;
      for (std::size_t g = 0; g < segment.groups.size(); ++g) {
        segment.groups[g].samples = from.groups[g].samples;
      }
    }
  }
  const Seconds estimate = estimator_.estimate(plan);
  if (!ranking_.wants(estimate)) return report_.complete;
  std::string what = in_words(plan, input_.workload);
  ranking_.offer(estimate, std::move(plan), std::move(what));
  return report_.complete;
}

/// All splits of the blocks of the pipelines from `pipeline` on; equal pipelines have ascending
/// splits. False when the budget ended.
bool Search::split_blocks(std::size_t pipeline) {
  if (pipeline == plan_.pipelines.size()) return judge();
  std::vector<ir::Stage>& stages = plan_.pipelines[pipeline].stages;
  const bool again = pipeline > 0 && structure_->parts[pipeline] == structure_->parts[pipeline - 1];
  return for_each_composition(
      input_.workload.size(), static_cast<int>(stages.size()), 1,
      [&](const std::vector<int>& split) {
        if (again && split < splits_[pipeline - 1]) return true;
        if (pipeline == 0 && known_.size() * as_size(batch_ + 1) > kMostTimes) known_.clear();
        splits_[pipeline] = split;
        int first = 0;
        for (std::size_t s = 0; s < stages.size(); ++s) {
          ir::Segment& segment = stages[s].segments.front();
          segment.first_block = BlockId{first};
          first += split[s];
          segment.last_block = BlockId{first - 1};
        }
        return split_blocks(pipeline + 1);
      });
}

bool Search::examine(const ir::Plan& common, const Parts& structure) {
  structure_ = &structure;
  plan_ = common;
  ir::Segment empty = plan_.pipelines.front().stages.front().segments.front();
  plan_.pipelines.clear();
  for (const auto& stages : space_.place(structure)) {
    ir::Pipeline& chain = plan_.pipelines.emplace_back();
    for (const auto& groups : stages) {
      ir::Segment segment = empty;
      for (const std::vector<DeviceId>& devices : groups) {
        ir::Group& group = segment.groups.emplace_back();
        group.devices = devices;
        group.tensor_parallel = static_cast<int>(devices.size());
        group.sequence = megatron_sequence(input_.job, group.tensor_parallel);
      }
      chain.stages.push_back({{std::move(segment)}});
    }
  }
  splits_.assign(plan_.pipelines.size(), {});
  return split_blocks(0);
}

/// What all parts of a plan have in common, each as a plan of one empty segment.
std::vector<ir::Plan> Search::commons() const {
  int highest = -1;
  std::vector<int> zero;
  for (const int stage : input_.job.allowed.zero_stages) {
    if (stage == 3) zero.push_back(3);
    if (stage >= 0 && stage <= 2) highest = std::max(highest, stage);
  }
  if (highest >= 0) zero.insert(zero.begin(), highest);
  std::vector<ir::Plan> all;
  for (const ir::ScheduleKind schedule : models::plain_schedules(input_.job.allowed.schedules)) {
    for (const int stage : zero) {
      for (const auto transfer :
           {ir::ActivationTransfer::sliced, ir::ActivationTransfer::leader_broadcast}) {
        ir::Plan& plan = all.emplace_back();
        plan.schedule = schedule;
        plan.communication.activation_transfer = transfer;
        ir::Segment segment;
        segment.zero.stage = stage;
        plan.pipelines.emplace_back().stages.push_back({{segment}});
      }
    }
  }
  return all;
}

/// Most compute first: what a search that ends early finds is then of some use.
void Search::order_structures() {
  std::vector<double> flops;
  for (const DeviceClass& same : space_.classes) {
    flops.push_back(
        models::peak_flops(input_.cluster.gpu(same.devices.front()), input_.job.dtype).value);
  }
  const auto power = [&](const Parts& structure) {
    double sum = 0;
    for (std::size_t c = 0; c < flops.size(); ++c) sum += structure.use[c] * flops[c];
    return sum;
  };
  std::stable_sort(space_.structures.begin(), space_.structures.end(),
                   [&](const Parts& a, const Parts& b) { return power(a) > power(b); });
}

/// What no search could get past.
std::optional<models::Infeasible> Search::impossible() const {
  const models::Allowed& allowed = input_.job.allowed;
  const std::size_t devices = input_.devices.size();
  if (devices == 0) return models::Infeasible{"devices", "no device may be used"};
  if (input_.job.global_batch < 1) {
    return models::Infeasible{"global batch",
                              fmt::format("a batch of {} samples", input_.job.global_batch)};
  }
  if (allowed.max_micro_batch_size < 1) {
    return models::Infeasible{"micro-batch size", fmt::format("the job allows at most {} samples",
                                                              allowed.max_micro_batch_size)};
  }
  if (allowed.recompute.empty()) {
    return models::Infeasible{"recompute", "the job allows no recompute setting, not even none"};
  }
  if (models::plain_schedules(input_.job.allowed.schedules).empty()) {
    return models::Infeasible{"schedule", "the job allows no schedule without virtual stages"};
  }
  if (commons().empty()) {
    return models::Infeasible{"ZeRO", "the job allows no ZeRO stage from 0 to 3"};
  }
  if (devices > kMostDevices || input_.job.global_batch > kMostSamples) {
    return models::Infeasible{
        "size of the search",
        fmt::format("{} devices and {} samples: brute force takes at most {} and {}", devices,
                    input_.job.global_batch, kMostDevices, kMostSamples)};
  }
  return std::nullopt;
}

PlannerResult Search::run() {
  if (auto no = impossible()) {
    report_.complete = no->constraint != "size of the search";
    return {*std::move(no), std::move(report_)};
  }
  space_ = make_space(input_, settings_.groups_per_stage, settings_.most_structures);
  order_structures();
  std::int64_t settled = 0;
  const std::vector<ir::Plan> all = commons();
  for (const ir::Plan& common : all) {
    known_.clear();
    for (const Parts& structure : space_.structures) {
      if (!report_.complete || !examine(common, structure)) break;
      ++settled;
    }
  }
  report_.complete = report_.complete && space_.complete;
  const std::string scope =
      fmt::format("{} devices: {} of {}{} structures were settled", input_.devices.size(), settled,
                  space_.complete ? "" : "more than ", space_.structures.size() * all.size());
  report_.notes.push_back(scope);
  if (report_.rejected_by_memory > 0) {
    report_.constraints.push_back(
        {kDeviceMemory, report_.rejected_by_memory, std::nullopt, "ways to run a pipeline"});
  }
  models::Infeasible none{kDeviceMemory, "no plan fits; nearest: " + nearest_};
  if (!report_.complete) {
    none = {"size of the search", scope + ", and none of their plans fits in memory"};
  }
  if (input_.job.gradient_synchronizations != 1) {
    report_.complete = false;
    report_.notes.push_back(
        "micro-batches were chosen for one round of gradient synchronization: no proof of the best "
        "plan");
  }
  return ranking_.finish(kExhaustive.name, settings_.evaluate_top, std::move(report_),
                         std::move(none));
}

}  // namespace
}  // namespace exhaustive

const PlannerEntry kExhaustive = planner_entry<
    SearchPlanner<exhaustive::Search, exhaustive::Settings>>(
    "exhaustive", "brute force; no paper",
    "all sets of pipelines of stages of tensor-parallel groups inside nodes, idle devices "
    "included, with all splits of the blocks, batch shares, micro-batch sizes, recompute and ZeRO "
    "stages",
    "contention and overlap (its judge is the closed form); plans whose strategy changes inside a "
    "stage; Ulysses and ring attention; virtual stages");

}  // namespace orrery::planners
