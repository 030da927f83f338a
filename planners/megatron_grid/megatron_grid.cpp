// The symmetric grid of Megatron-LM: every pipeline has the same stages, every stage the same
// tensor-parallel degree, and devices are laid out in rank order whatever their types. Pipelines
// get equal batches: Megatron refuses a batch that micro-batch size x data-parallel degree does not
// divide [Narayanan et al. 2021, 3.1: m = B / (d b)]; unequal ones are an option. Grids over all
// devices are tried first, others only if none of those is legal and fits: the strategies that
// papers print for their Megatron baseline use all healthy GPUs, even where the fast ones alone
// would be faster [Hetu v2, Tables 4 and 6; AutoHet, V-A2: pure pipelines over five GPUs].
// A grid whose states do not fit is tried with more and more of the optimizer states in host memory
// where the job allows that.
// [Narayanan et al. 2021, section 3 and 5; HexiScale section 3.1 as the baseline]
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "models/base/ids.h"
#include "models/cost/host_step.h"
#include "models/cost/memory.h"
#include "models/ir/names.h"
#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/kit/estimate.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"
#include "planners/kit/settings.h"
#include "planners/kit/use_all_devices.h"

namespace orrery::planners {
namespace {

enum class RankOrder { tp_dp_pp, tp_pp_dp };

ir::EnumNames<RankOrder> enum_names(RankOrder) {
  return {{RankOrder::tp_dp_pp, "tp-dp-pp"}, {RankOrder::tp_pp_dp, "tp-pp-dp"}};
}

struct MegatronGridSettings {
  RankOrder order = RankOrder::tp_dp_pp;
  UseAllDevices use_all = UseAllDevices::automatic;
  bool equal_batches = true;
  ir::ActivationTransfer transfer = ir::ActivationTransfer::sliced;
  int evaluate_top = 32;
};

void describe(config::Visitor& v, MegatronGridSettings& s) {
  v.optional("order", s.order,
             "Rank order over the devices in id order, fastest first: tp-dp-pp (Megatron-LM's "
             "default) or tp-pp-dp.");
  v.optional(
      "use_all", s.use_all,
      "yes: only grids over all devices. no: for each TP x PP as many replicas as the devices "
      "allow (with equal batches: as many as also divide the batch), the rest, the last in "
      "rank order, stays idle. auto: yes, and no if none of those is legal and fits in "
      "memory.");
  v.optional("equal_batches", s.equal_batches,
             "yes: only degrees for which micro-batch size x DP divides the batch, as Megatron "
             "demands. no: pipelines may differ by one micro-batch, the first in rank order take "
             "more.");
  v.optional(
      "activation_transfer", s.transfer,
      "sliced: scatter-gather of activations between stages [Narayanan et al. 2021, 4.1]; or "
      "leader_broadcast.");
  v.optional("evaluate_top", s.evaluate_top,
             "Plans that the evaluator judges, best first in closed form; 0: all that fit.");
  v.between("evaluate_top", s.evaluate_top, 0, 1'000'000);
}

/// Plans that a ranking keeps where the evaluator is not asked: what its report shows.
constexpr std::size_t kReported = Ranking::kRunnersUp + 1;

/// Where the devices' memory does not do, the share of the optimizer states in host memory grows by
/// so much at a time [choice].
constexpr double kOffloadStep = 0.25;

/// One point of the grid.
struct GridPoint {
  int tensor = 1;
  int stages = 1;
  int replicas = 1;
  int micro_batch_size = 1;
  ir::Recompute recompute = ir::Recompute::none;
  int zero = 0;
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
  double offload = 0;  ///< ir::Plan::optimizer_offload.
};

std::string in_words(const GridPoint& grid) {
  std::string text = fmt::format("TP {} x PP {} x DP {}, micro-batch {}", grid.tensor, grid.stages,
                                 grid.replicas, grid.micro_batch_size);
  if (grid.recompute != ir::Recompute::none) {
    text += fmt::format(", {} recompute", ir::name_of(grid.recompute));
  }
  if (grid.zero > 0) text += fmt::format(", ZeRO-{}", grid.zero);
  if (grid.offload > 0) {
    text += fmt::format(", {:.0f} % of optimizer states in host memory", 100 * grid.offload);
  }
  return fmt::format("{}, {}", text, ir::name_of(grid.schedule));
}

/// Layers per stage, within one of each other. The remainder goes to the stages from the second one
/// on, so that the first, which holds most activations and the embedding, comes last.
std::vector<int> split_layers(int layers, int stages) {
  std::vector<int> result = even_shares(layers, stages);
  std::rotate(result.begin(), result.end() - 1, result.end());
  return result;
}

class MegatronGridSearch {
 public:
  MegatronGridSearch(const PlannerInput& input, const MegatronGridSettings& settings)
      : input_(input),
        settings_(settings),
        layers_(count_layers(input.workload)),
        estimator_(input),
        ranking_(input, settings.evaluate_top == 1 ? kReported : Ranking::kAll) {
    const auto lacks = [&](DeviceId id) { return !models::lacks_host(input.cluster, id).empty(); };
    const auto& devices = input.devices;
    if (std::none_of(devices.begin(), devices.end(), lacks)) {
      most_offload_ = input.job.allowed.max_optimizer_offload;
    }
  }

  PlannerResult run();

 private:
  const std::vector<DeviceId>& devices_for(int tensor) const;
  int replicas_for(int most, bool all_devices) const;
  bool divides(int replicas, int micro_batch_size) const;
  std::vector<GridPoint> variants() const;
  void sweep(bool all_devices);
  void examine(const GridPoint& grid);
  ir::Pipeline build_pipeline(const GridPoint& grid, int replica, int micro_batches) const;
  ir::Plan build(const GridPoint& grid) const;
  Seconds lower_bound(const ir::Plan& plan) const;
  models::Infeasible infeasible() const;

  const PlannerInput& input_;
  const MegatronGridSettings& settings_;
  int layers_;
  double most_offload_ = 0;
  PlanEstimator estimator_;
  Ranking ranking_;
  SearchReport report_;
  mutable std::map<int, std::vector<DeviceId>> devices_;  // By tensor-parallel degree.
  std::optional<Seconds> forbidden_;  // The best estimate of those that do not fit.
  double nearest_ = 0;                // Smallest need / have of those that do not fit.
  std::string witness_;
};

/// The first devices of each node in multiples of the degree, so that no tensor-parallel group
/// leaves its node.
const std::vector<DeviceId>& MegatronGridSearch::devices_for(int tensor) const {
  const auto [place, added] = devices_.try_emplace(tensor);
  std::vector<DeviceId>& result = place->second;
  if (!added) return result;
  std::map<NodeId, std::vector<DeviceId>> by_node;
  for (const DeviceId device : input_.devices) {
    by_node[input_.cluster.device(device).node].push_back(device);
  }
  for (const auto& [node, devices] : by_node) {
    const auto groups = devices.size() / tensor;
    result.insert(result.end(), devices.begin(),
                  devices.begin() + static_cast<std::ptrdiff_t>(groups) * tensor);
  }
  return result;
}

/// All choices but the degrees.
std::vector<GridPoint> MegatronGridSearch::variants() const {
  const models::Allowed& allowed = input_.job.allowed;
  const std::vector<int> zero_stages = zero_stages_up_to_1(input_.job);
  std::vector<GridPoint> result;
  for (const ir::ScheduleKind schedule : models::plain_schedules(input_.job.allowed.schedules)) {
    for (const ir::Recompute recompute : allowed.recompute) {
      for (const int zero : zero_stages) {
        for (const std::int64_t size : divisors(input_.job.global_batch)) {
          if (size > allowed.max_micro_batch_size) break;
          result.push_back({1, 1, 1, static_cast<int>(size), recompute, zero, schedule, 0});
        }
      }
    }
  }
  return result;
}

/// Number of replicas, with devices for at most `most`. For equal batches without idle devices all
/// of them or, if they do not divide the batch, none (0).
int MegatronGridSearch::replicas_for(int most, bool all_devices) const {
  if (!settings_.equal_batches) return most;
  const std::int64_t batch = input_.job.global_batch;
  if (all_devices) return batch % most == 0 ? most : 0;
  int replicas = static_cast<int>(std::min<std::int64_t>(most, batch));
  while (replicas > 1 && batch % replicas != 0) --replicas;
  return replicas;
}

/// Whether the replicas get a micro-batch each, and the same number if batches must be equal.
bool MegatronGridSearch::divides(int replicas, int micro_batch_size) const {
  const std::int64_t micro_batches = input_.job.global_batch / micro_batch_size;
  return micro_batches >= replicas && (!settings_.equal_batches || micro_batches % replicas == 0);
}

void MegatronGridSearch::sweep(bool all_devices) {
  std::map<NodeId, int> in_node;
  int largest = 0;
  for (const DeviceId d : input_.devices) {
    largest = std::max(largest, ++in_node[input_.cluster.device(d).node]);
  }
  const std::vector<GridPoint> choices = variants();
  for (const int tensor : tensor_degrees(input_.workload, input_.job, largest)) {
    const std::vector<DeviceId>& devices = devices_for(tensor);
    if (all_devices && devices.size() != input_.devices.size()) continue;
    const int groups = static_cast<int>(devices.size()) / tensor;
    if (!one_vendor_per_group(devices, tensor, input_.cluster)) continue;
    for (int stages = 1; stages <= std::min(groups, layers_); ++stages) {
      if (all_devices && groups % stages != 0) continue;
      const int replicas = replicas_for(groups / stages, all_devices);
      if (replicas == 0) continue;
      for (GridPoint point : choices) {
        if (!divides(replicas, point.micro_batch_size)) continue;
        if (must_end(input_, report_.plans_examined)) {
          report_.complete = false;
          return;
        }
        point.tensor = tensor;
        point.stages = stages;
        point.replicas = replicas;
        examine(point);
      }
    }
  }
}

/// A plan takes no less than its first pipeline, which no other has more micro-batches than.
Seconds MegatronGridSearch::lower_bound(const ir::Plan& plan) const {
  const ir::Pipeline& first = plan.pipelines.front();
  return PlanEstimator::pipeline(plan, estimator_.stages(plan, first), first.micro_batches);
}

void MegatronGridSearch::examine(const GridPoint& grid) {
  ++report_.plans_examined;
  const ir::Plan plan = build(grid);
  const ir::MemoryVerdict verdict =
      models::check_memory(plan, input_.cluster, input_.workload, input_.job, input_.profile);
  const Seconds bound = lower_bound(plan);
  if (verdict.fits()) {
    if (!ranking_.wants(bound)) return;
    ranking_.offer(
        estimator_.estimate(plan), [this, grid] { return build(grid); },
        [grid] { return in_words(grid); });
    return;
  }
  if (grid.offload < most_offload_) {
    GridPoint more = grid;
    more.offload = std::min(grid.offload + kOffloadStep, most_offload_);
    return examine(more);
  }
  const bool witness = !forbidden_ || bound < *forbidden_;
  const Seconds estimate = witness ? estimator_.estimate(plan) : bound;
  if (witness) forbidden_ = std::min(forbidden_.value_or(estimate), estimate);
  forbid_by_memory(report_, estimate,
                   [&] { return fmt::format("{}: {}", in_words(grid), verdict.explain()); });
  double ratio = 0;
  for (const ir::MemoryUse& use : verdict.by_gpu_type) {
    ratio = std::max(ratio, use.need / use.have);
  }
  if (!witness_.empty() && nearest_ <= ratio) return;
  nearest_ = ratio;
  witness_ = fmt::format("{}: {}", in_words(grid), verdict.explain());
}

ir::Pipeline MegatronGridSearch::build_pipeline(const GridPoint& grid, int replica,
                                                int micro_batches) const {
  const std::vector<DeviceId>& devices = devices_for(grid.tensor);
  const std::vector<int> layers = split_layers(layers_, grid.stages);
  const auto sequence = megatron_sequence(input_.job, grid.tensor);
  ir::Pipeline chain;
  chain.micro_batch_size = grid.micro_batch_size;
  chain.micro_batches = micro_batches;
  int first = 0;
  for (int s = 0; s < grid.stages; ++s) {
    const int position = settings_.order == RankOrder::tp_dp_pp ? s * grid.replicas + replica
                                                                : replica * grid.stages + s;
    const auto members = std::span(devices).subspan(as_size(position * grid.tensor), grid.tensor);
    chain.stages.push_back(
        stage_of_layers(input_.workload, first, layers[s],
                        tensor_groups(members, grid.tensor, grid.micro_batch_size, sequence),
                        grid.recompute, grid.zero));
    first += layers[s];
  }
  return chain;
}

ir::Plan MegatronGridSearch::build(const GridPoint& grid) const {
  // Micro-batches by replica.
  const std::vector<int> shares =
      even_shares(static_cast<int>(input_.job.global_batch / grid.micro_batch_size), grid.replicas);
  ir::Plan plan;
  plan.schedule = grid.schedule;
  plan.communication.activation_transfer = settings_.transfer;
  plan.optimizer_offload = grid.offload;
  plan.pipelines.reserve(as_size(grid.replicas));
  for (int r = 0; r < grid.replicas; ++r) {
    plan.pipelines.push_back(build_pipeline(grid, r, shares[r]));
  }
  return plan;
}

models::Infeasible MegatronGridSearch::infeasible() const {
  if (report_.plans_examined > 0) return {kDeviceMemory, witness_};
  return {"symmetric grid",
          report_.complete
              ? fmt::format("no TP x PP x DP over {} devices has {} layers to share, a batch of {} "
                            "to divide{} and a schedule that the job allows",
                            input_.devices.size(), layers_, input_.job.global_batch,
                            settings_.equal_batches ? " into equal parts" : "")
              : "the search was ended before the first plan"};
}

PlannerResult MegatronGridSearch::run() {
  report_.work_unit = "plans";
  sweep_devices(settings_.use_all, ranking_, report_,
                "no grid over all devices fits: some may stay idle", [&](bool all) { sweep(all); });
  report_.work = report_.plans_examined;
  return ranking_.finish("megatron_grid", settings_.evaluate_top, report_, infeasible());
}

}  // namespace

extern const PlannerEntry kMegatronGrid;

const PlannerEntry kMegatronGrid = planner_entry<
    SearchPlanner<MegatronGridSearch, MegatronGridSettings>>(
    "megatron_grid", "Narayanan et al. 2021 (Megatron-LM), sections 3 and 5",
    "all TP x PP x DP x micro-batch size x recompute x schedule x ZeRO 0 or 1, layers within one "
    "of an even share, equal batches (as an option within one micro-batch)",
    "differences between devices: ranks follow the cluster file");

}  // namespace orrery::planners
