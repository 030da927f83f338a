// The symmetric grid of Megatron-LM: every pipeline has the same stages, every stage the same
// tensor-parallel degree, and devices are laid out in rank order whatever their types. Pipelines
// get equal batches: Megatron refuses a batch that micro-batch size x data-parallel degree does not
// divide [Narayanan et al. 2021, 3.1: m = B / (d b)]; unequal ones are an option. Grids over all
// devices come first, others count only where none of those is legal and fits: the strategies that
// papers print for their Megatron baseline use all healthy GPUs, even where the fast ones alone end
// earlier [Hetu v2, Tables 4 and 6; AutoHet, V-A2: pure pipelines over five GPUs].
// [Narayanan et al. 2021, section 3 and 5; HexiScale section 3.1 as the baseline]
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "models/cost/memory.h"
#include "models/ir/names.h"
#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/kit/estimate.h"
#include "planners/kit/integers.h"
#include "planners/kit/options.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"

namespace orrery::planners {

extern const PlannerEntry kMegatronGrid;

namespace {

enum class Order { tp_dp_pp, tp_pp_dp };
enum class UseAll { automatic, yes, no };

struct Settings {
  Order order = Order::tp_dp_pp;
  UseAll use_all = UseAll::automatic;
  bool equal_batches = true;
  ir::ActivationTransfer transfer = ir::ActivationTransfer::sliced;
  int evaluate_top = 0;
};

/// One point of the grid.
struct Grid {
  int tensor = 1;
  int stages = 1;
  int replicas = 1;
  int micro_batch_size = 1;
  ir::Recompute recompute = ir::Recompute::none;
  int zero = 0;
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
};

/// All but the degrees.
struct Variant {
  int micro_batch_size = 1;
  ir::Recompute recompute = ir::Recompute::none;
  int zero = 0;
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
};

std::vector<OptionInfo> options() {
  return {
      {"order", "tp-dp-pp",
       "Rank order over the devices in id order, fastest first: tp-dp-pp (Megatron-LM's default) "
       "or tp-pp-dp."},
      {"use_all", "auto",
       "yes: only grids over all devices. no: for each TP x PP as many replicas as the devices "
       "allow (with equal batches: as many as also divide the batch), the rest, the last in rank "
       "order, stays idle. auto: yes, and no if none of those is legal and fits in memory."},
      {"equal_batches", "yes",
       "yes: only degrees for which micro-batch size x DP divides the batch, as Megatron demands. "
       "no: pipelines may differ by one micro-batch, the first in rank order take more."},
      {"activation_transfer", "sliced",
       "sliced: scatter-gather of activations between stages [Narayanan et al. 2021, 4.1]; or "
       "leader_broadcast."},
      {"evaluate_top", "32",
       "Plans that the evaluator judges, best first in closed form; 0: all that fit."},
  };
}

std::string in_words(const Grid& grid) {
  std::string text = fmt::format("TP {} x PP {} x DP {}, micro-batch {}", grid.tensor, grid.stages,
                                 grid.replicas, grid.micro_batch_size);
  if (grid.recompute != ir::Recompute::none) {
    text += fmt::format(", {} recompute", ir::name_of(grid.recompute));
  }
  if (grid.zero > 0) text += fmt::format(", ZeRO-{}", grid.zero);
  return fmt::format("{}, {}", text, ir::name_of(grid.schedule));
}

/// Layers per stage, within one of each other. The remainder goes to the stages from the second one
/// on, so that the first, which holds most activations and the embedding, comes last.
std::vector<int> split_layers(int layers, int stages) {
  std::vector<int> result(static_cast<std::size_t>(stages), layers / stages);
  for (int i = 0; i < layers % stages; ++i) {
    ++result[static_cast<std::size_t>((i + 1) % stages)];
  }
  return result;
}

class MegatronGrid final : public Planner {
 public:
  explicit MegatronGrid(Settings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override;

 private:
  Settings settings_;
};

class Search {
 public:
  Search(const PlannerInput& input, const Settings& settings)
      : input_(input),
        settings_(settings),
        layers_(count_layers(input.workload)),
        estimator_(input),
        ranking_(input) {}

  PlannerResult run();

 private:
  std::vector<DeviceId> devices_for(int tensor) const;
  bool aligned(int tensor) const;
  bool one_vendor(const std::vector<DeviceId>& devices, int tensor) const;
  int replicas_for(int most, bool all_devices) const;
  bool divides(int replicas, int micro_batch_size) const;
  std::vector<Variant> variants() const;
  void sweep(bool all_devices);
  void examine(const Grid& grid);
  ir::Plan build(const Grid& grid) const;
  bool stop() const;
  models::Infeasible infeasible() const;

  const PlannerInput& input_;
  const Settings& settings_;
  int layers_;
  PlanEstimator estimator_;
  Ranking ranking_;
  SearchReport report_;
  double nearest_ = 0;  // Smallest need / have of those that do not fit.
  std::string witness_;
};

/// The first devices of each node in multiples of the degree, so that no tensor-parallel group
/// leaves its node.
std::vector<DeviceId> Search::devices_for(int tensor) const {
  std::map<NodeId, std::vector<DeviceId>> by_node;
  for (const DeviceId device : input_.devices) {
    by_node[input_.cluster.device(device).node].push_back(device);
  }
  std::vector<DeviceId> result;
  for (const auto& [node, devices] : by_node) {
    const auto groups = devices.size() / static_cast<std::size_t>(tensor);
    result.insert(result.end(), devices.begin(),
                  devices.begin() + static_cast<std::ptrdiff_t>(groups) * tensor);
  }
  return result;
}

bool Search::aligned(int tensor) const {
  return devices_for(tensor).size() == input_.devices.size();
}

bool Search::one_vendor(const std::vector<DeviceId>& devices, int tensor) const {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::size_t leader = i - i % static_cast<std::size_t>(tensor);
    if (input_.cluster.gpu(devices[i]).vendor != input_.cluster.gpu(devices[leader]).vendor) {
      return false;
    }
  }
  return true;
}

std::vector<Variant> Search::variants() const {
  const models::Allowed& allowed = input_.job.allowed;
  std::vector<int> zero_stages;
  for (const int stage : allowed.zero_stages) {
    if (stage <= 1) zero_stages.push_back(stage);
  }
  if (zero_stages.empty()) zero_stages = {smallest_zero_stage(input_.job)};
  std::vector<Variant> result;
  for (const ir::ScheduleKind schedule : models::plain_schedules(input_.job.allowed.schedules)) {
    for (const ir::Recompute recompute : allowed.recompute) {
      for (const int zero : zero_stages) {
        for (const std::int64_t size : divisors(input_.job.global_batch)) {
          if (size > allowed.max_micro_batch_size) break;
          result.push_back({static_cast<int>(size), recompute, zero, schedule});
        }
      }
    }
  }
  return result;
}

bool Search::stop() const {
  return canceled(input_) ||
         (input_.work_budget > 0 && report_.plans_examined >= input_.work_budget);
}

/// Replicas, of which `most` have devices. Equal batches without idle devices: all or, if they do
/// not divide the batch, none (0).
int Search::replicas_for(int most, bool all_devices) const {
  if (!settings_.equal_batches) return most;
  const std::int64_t batch = input_.job.global_batch;
  if (all_devices) return batch % most == 0 ? most : 0;
  int replicas = static_cast<int>(std::min<std::int64_t>(most, batch));
  while (replicas > 1 && batch % replicas != 0) --replicas;
  return replicas;
}

/// Whether the replicas get a micro-batch each, and the same number if batches must be equal.
bool Search::divides(int replicas, int micro_batch_size) const {
  const std::int64_t micro_batches = input_.job.global_batch / micro_batch_size;
  return micro_batches >= replicas && (!settings_.equal_batches || micro_batches % replicas == 0);
}

void Search::sweep(bool all_devices) {
  std::map<NodeId, int> in_node;
  int largest = 0;
  for (const DeviceId d : input_.devices) {
    largest = std::max(largest, ++in_node[input_.cluster.device(d).node]);
  }
  const std::vector<Variant> choices = variants();
  for (const int tensor : tensor_degrees(input_.workload, input_.job, largest)) {
    if (all_devices && !aligned(tensor)) continue;
    const std::vector<DeviceId> devices = devices_for(tensor);
    const int groups = static_cast<int>(devices.size()) / tensor;
    if (!one_vendor(devices, tensor)) continue;
    for (int stages = 1; stages <= std::min(groups, layers_); ++stages) {
      if (all_devices && groups % stages != 0) continue;
      const int replicas = replicas_for(groups / stages, all_devices);
      if (replicas == 0) continue;
      for (const Variant& v : choices) {
        if (!divides(replicas, v.micro_batch_size)) continue;
        if (stop()) {
          report_.complete = false;
          return;
        }
        examine({tensor, stages, replicas, v.micro_batch_size, v.recompute, v.zero, v.schedule});
      }
    }
  }
}

void Search::examine(const Grid& grid) {
  ++report_.plans_examined;
  const ir::Plan plan = build(grid);
  const ir::MemoryVerdict verdict =
      models::check_memory(plan, input_.cluster, input_.workload, input_.job, input_.profile);
  const Seconds estimate = estimator_.estimate(plan);
  if (verdict.fits()) {
    ranking_.offer(
        estimate, [this, grid] { return build(grid); }, [grid] { return in_words(grid); });
    return;
  }
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

ir::Plan Search::build(const Grid& grid) const {
  const std::vector<DeviceId> devices = devices_for(grid.tensor);
  const std::vector<int> layers = split_layers(layers_, grid.stages);
  const int micro_batches = static_cast<int>(input_.job.global_batch / grid.micro_batch_size);
  const bool split_norms = grid.tensor > 1 && input_.job.allowed.sequence_parallel;
  ir::Plan plan;
  plan.schedule = grid.schedule;
  plan.communication.activation_transfer = settings_.transfer;
  for (int r = 0; r < grid.replicas; ++r) {
    ir::Pipeline chain;
    chain.micro_batch_size = grid.micro_batch_size;
    chain.micro_batches =
        micro_batches / grid.replicas + (r < micro_batches % grid.replicas ? 1 : 0);
    int first = 0;
    for (int s = 0; s < grid.stages; ++s) {
      const int position =
          settings_.order == Order::tp_dp_pp ? s * grid.replicas + r : r * grid.stages + s;
      const auto begin = devices.begin() + static_cast<std::ptrdiff_t>(position) * grid.tensor;
      ir::Segment segment =
          segment_of_layers(input_.workload, first, layers[static_cast<std::size_t>(s)]);
      first += layers[static_cast<std::size_t>(s)];
      ir::Group group;
      group.devices.assign(begin, begin + grid.tensor);
      group.tensor_parallel = grid.tensor;
      group.samples = grid.micro_batch_size;
      if (split_norms) group.sequence = ir::SequenceParallelism::megatron;
      segment.groups.push_back(std::move(group));
      segment.recompute = grid.recompute;
      segment.zero.stage = grid.zero;
      chain.stages.push_back({{std::move(segment)}});
    }
    plan.pipelines.push_back(std::move(chain));
  }
  return plan;
}

models::Infeasible Search::infeasible() const {
  if (report_.plans_examined > 0) return {"device memory", witness_};
  return {"symmetric grid",
          report_.complete
              ? fmt::format("no TP x PP x DP over {} devices has {} layers to share, a batch of {} "
                            "to divide{} and a schedule that the job allows",
                            input_.devices.size(), layers_, input_.job.global_batch,
                            settings_.equal_batches ? " into equal parts" : "")
              : "the search was ended before the first plan"};
}

PlannerResult Search::run() {
  report_.work_unit = "plans";
  if (settings_.use_all != UseAll::no) sweep(true);
  if (settings_.use_all == UseAll::no ||
      (settings_.use_all == UseAll::automatic && ranking_.empty() && report_.complete)) {
    if (settings_.use_all == UseAll::automatic) {
      report_.notes.emplace_back("no grid over all devices fits: some may stay idle");
    }
    sweep(false);
  }
  report_.work = report_.plans_examined;
  return ranking_.finish(kMegatronGrid.name, settings_.evaluate_top, report_, infeasible());
}

PlannerResult MegatronGrid::plan(const PlannerInput& input) const {
  return Search(input, settings_).run();
}

std::variant<std::unique_ptr<Planner>, PlannerEntry::BadOption> make(const Options& given) {
  OptionReader reader(options(), given);
  Settings settings;
  settings.order =
      reader.choice<Order>("order", {{"tp-dp-pp", Order::tp_dp_pp}, {"tp-pp-dp", Order::tp_pp_dp}});
  settings.use_all = reader.choice<UseAll>(
      "use_all", {{"auto", UseAll::automatic}, {"yes", UseAll::yes}, {"no", UseAll::no}});
  settings.equal_batches = reader.choice<bool>("equal_batches", {{"yes", true}, {"no", false}});
  settings.transfer = reader.choice<ir::ActivationTransfer>(
      "activation_transfer", {{"sliced", ir::ActivationTransfer::sliced},
                              {"leader_broadcast", ir::ActivationTransfer::leader_broadcast}});
  settings.evaluate_top = static_cast<int>(reader.integer("evaluate_top", 0, 1'000'000));
  if (reader.problem()) return *reader.problem();
  return std::make_unique<MegatronGrid>(settings);
}

}  // namespace

const PlannerEntry kMegatronGrid = {
    "megatron_grid",
    "Narayanan et al. 2021 (Megatron-LM), sections 3 and 5",
    "all TP x PP x DP x micro-batch size x recompute x schedule x ZeRO 0 or 1, layers within one "
    "of an even share, equal batches (as an option within one micro-batch)",
    "differences between devices: ranks follow the cluster file",
    options,
    make,
};

}  // namespace orrery::planners
