// HetHub: a tree of three levels (uneven pipeline stages over GPU types, uniform data parallelism,
// uniform tensor parallelism), searched depth first; leaves are ranked by a 1F1B predictor with the
// slowest stage first. [HetHub, section 3.3]
//
// Deviation: the paper gives neither the predictor's formulas nor the value of its "upper bound"
// per stage; predictor.h says what takes the place of the former, option stage_bound of the
// latter. Recomputation and ZeRO, of which the paper says nothing, are chosen by the same predictor
// among what the job allows.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/base/ids.h"
#include "models/cost/memory.h"
#include "models/ir/names.h"
#include "planners/catalog.h"
#include "planners/hethub/balance.h"
#include "planners/hethub/stages.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"
#include "planners/kit/settings.h"

namespace orrery::planners {

extern const PlannerEntry kHethub;

namespace {

enum class HethubLayers { by_type, even };
enum class HethubOrder { descending, ascending, cluster };
enum class HethubCommunicator { cluster, rdma };

struct HethubSettings {
  int tensor = 0;
  int replicas = 0;
  int micro_batch_size = 1;
  double stage_bound = 0;  ///< 0 or at least 1.
  HethubLayers layers = HethubLayers::by_type;
  HethubOrder order = HethubOrder::descending;
  HethubCommunicator communicator = HethubCommunicator::cluster;
  ir::ActivationTransfer transfer = ir::ActivationTransfer::leader_broadcast;
  int evaluate_top = 1;
};

ir::EnumNames<HethubLayers> enum_names(HethubLayers) {
  return {{HethubLayers::by_type, "by_type"}, {HethubLayers::even, "even"}};
}
ir::EnumNames<HethubOrder> enum_names(HethubOrder) {
  return {{HethubOrder::descending, "descending"},
          {HethubOrder::ascending, "ascending"},
          {HethubOrder::cluster, "cluster"}};
}
ir::EnumNames<HethubCommunicator> enum_names(HethubCommunicator) {
  return {{HethubCommunicator::cluster, "cluster"}, {HethubCommunicator::rdma, "rdma"}};
}

void describe(config::Visitor& v, HethubSettings& s) {
  v.optional("tensor_parallel", s.tensor, "The degree of all stages; 0: every one. [Table 1: 2]");
  v.optional("data_parallel", s.replicas,
             "Replicas of all stages; 0: every number that divides the batch. [Table 1: 4]");
  v.optional("micro_batch_size", s.micro_batch_size,
             "Samples per micro-batch [Table 1: 1]; 0: every size that the job allows.");
  v.optional("stage_bound", s.stage_bound,
             "Bottleneck restriction [3.3.2, rule 2; no value in the paper]: the longest stage may "
             "take this many times the shortest possible longest stage under the same degrees, 1 "
             "or more. 0: no bound but the one that keeps the optimum, that a branch is left when "
             "its longest stage alone takes longer than the plans found.");
  v.optional("layers", s.layers,
             "by_type: non-uniform slicing, layers for each GPU type; even: uniform slicing, all "
             "stages within one layer [4.2.2: baseline].");
  v.optional("stage_order", s.order,
             "descending: slowest stage first [3.3.2, rule 3]; ascending; cluster: type by type as "
             "the cluster file has them.");
  v.optional("communicator", s.communicator,
             "Between vendors: cluster, host-staged where the cluster says so (CPU-based "
             "communicator); rdma: as if they had a common library (GPU-based communicator). "
             "[3.1]");
  v.optional("activation_transfer", s.transfer,
             "leader_broadcast: the whole tensor between leaders [Eq. 1], then to the other "
             "members; or sliced: scatter-gather (Megatron-LM).");
  v.optional("evaluate_top", s.evaluate_top,
             "Plans that the evaluator judges, best by the predictor first; 1: the predictor alone "
             "decides, as in the paper; 0: all.");
  v.between("tensor_parallel", s.tensor, 0, 1 << 20);
  v.between("data_parallel", s.replicas, 0, 1 << 20);
  v.between("micro_batch_size", s.micro_batch_size, 0, 1 << 20);
  if (s.stage_bound != 0) v.between("stage_bound", s.stage_bound, 1.0, 1e6);
  v.between("evaluate_top", s.evaluate_top, 0, 1'000'000);
}

/// Bounds add the same numbers in another order: a branch must be worse by more than rounding.
constexpr double kHethubRounding = 1e-9;
/// Offers kept, so that the report has runners-up.
constexpr std::size_t kHethubKept = 16;

/// The devices and networks that the planner believes in.
class HethubView {
 public:
  HethubView(const PlannerInput& input, HethubCommunicator communicator)
      : cluster_(without_staging(input.cluster, communicator)),
        topology_(cluster_, input.profile),
        input_{cluster_,        topology_,     input.workload, input.job,         input.profile,
               input.evaluator, input.devices, input.seed,     input.work_budget, input.canceled} {}
  HethubView(const HethubView&) = delete;
  const PlannerInput& input() const { return input_; }

 private:
  static models::Cluster without_staging(models::Cluster cluster, HethubCommunicator communicator) {
    if (communicator == HethubCommunicator::rdma) cluster.host_staging.clear();
    return cluster;
  }
  models::Cluster cluster_;
  models::Topology topology_;
  PlannerInput input_;
};

/// What is below one choice of degrees.
struct HethubTree {
  HethubDegrees degrees;
  std::vector<HethubType> types;  // By GPU type of the cluster.
  double shortest = 0;            // Shortest possible longest stage, memory aside.
};

/// For each tensor-parallel degree, data-parallel degree, micro-batch size, recompute and ZeRO
/// stage: all ways to give layers to GPU types. A type's layers spread over its places within one
/// layer of each other (places without a layer stay idle), stages follow the settings' order, and
/// predict_iteration() ranks the leaves. Branch and bound: a branch is left when its shortest
/// possible longest stage, times the micro-batches, is no better than what the ranking would keep;
/// that loses no plan that could win.
class HethubSearch {
 public:
  HethubSearch(const PlannerInput& input, const HethubSettings& settings)
      : view_(input, settings.communicator),
        input_(view_.input()),
        settings_(settings),
        layers_(count_layers(input.workload)),
        costs_(input_),
        ranking_(input, settings.evaluate_top == 0
                            ? std::size_t{1} << 20
                            : std::max(kHethubKept, as_size(settings.evaluate_top))) {}

  PlannerResult run();

 private:
  using Order = std::vector<HethubSlot>;

  std::vector<HethubTree> trees();
  void add_trees(int tensor, std::vector<HethubTree>& trees);
  std::vector<HethubDegrees> degrees(int tensor, int most_replicas) const;
  int most_layers(const HethubDegrees& degrees, int gpu_type);

  void explore(const HethubTree& tree);
  void descend(const HethubTree& tree, const HethubBalance& balance, std::size_t type, int left,
               double longest);
  bool even(const HethubTree& tree, std::size_t type, int layers) const;
  void balanced_leaf(const HethubTree& tree);
  void leaf(const HethubTree& tree, double longest);
  Order arrange(const HethubTree& tree, const HethubStages& stages) const;
  void refuse(const Order& order, const HethubStages& stages, const HethubTree& tree,
              double longest);
  std::string in_words(const Order& order, const HethubStages& stages,
                       const HethubDegrees& degrees) const;
  const HethubStages& stages(const HethubDegrees& degrees);
  bool wanted(const HethubTree& tree, double longest) const {
    return ranking_.wants(Seconds{(1 - kHethubRounding) * tree.degrees.micro_batches * longest});
  }
  bool stop();
  models::Infeasible none() const;

  HethubView view_;
  const PlannerInput& input_;
  const HethubSettings& settings_;
  int layers_;
  StageCosts costs_;
  Ranking ranking_;
  SearchReport report_;
  bool stopped_ = false;
  std::int64_t cut_ = 0;     // Branches that stage_bound forbids.
  std::vector<int> counts_;  // Layers by GPU type on the way to a leaf.
  std::map<std::pair<int, int>, std::unique_ptr<HethubStages>> stages_;
  std::map<std::tuple<int, int, int, int, int>, std::vector<Bytes>> least_memory_;
};

bool HethubSearch::stop() {
  if (stopped_) return true;
  stopped_ = must_end(input_, report_.plans_examined);
  if (stopped_) report_.complete = false;
  return stopped_;
}

const HethubStages& HethubSearch::stages(const HethubDegrees& degrees) {
  auto& known = stages_[{degrees.tensor, degrees.replicas}];
  if (known == nullptr) {
    known = std::make_unique<HethubStages>(input_, costs_, settings_.transfer, degrees.tensor,
                                           degrees.replicas);
  }
  return *known;
}

std::vector<HethubDegrees> HethubSearch::degrees(int tensor, int most_replicas) const {
  const models::Allowed& allowed = input_.job.allowed;
  std::vector<int> zero_stages;
  for (const int stage : allowed.zero_stages) {
    if (stage <= 1) zero_stages.push_back(stage);
  }
  if (zero_stages.empty()) zero_stages = {smallest_zero_stage(input_.job)};
  std::vector<HethubDegrees> result;
  for (int replicas = 1; replicas <= most_replicas; ++replicas) {
    if (settings_.replicas > 0 && replicas != settings_.replicas) continue;
    if (input_.job.global_batch % replicas != 0) continue;
    const std::int64_t share = input_.job.global_batch / replicas;
    for (const std::int64_t size : divisors(share)) {
      if (size > allowed.max_micro_batch_size) break;
      if (settings_.micro_batch_size > 0 && size != settings_.micro_batch_size) continue;
      if (share / size > std::numeric_limits<int>::max()) continue;
      for (const ir::Recompute recompute : allowed.recompute) {
        for (const int zero : zero_stages) {
          result.push_back({tensor, replicas, static_cast<int>(size),
                            static_cast<int>(share / size), recompute, zero});
        }
      }
    }
  }
  return result;
}

void HethubSearch::add_trees(int tensor, std::vector<HethubTree>& trees) {
  const auto groups = hethub_groups(input_, tensor);
  std::size_t most = 0;
  for (const auto& of_type : groups) most = std::max(most, of_type.size());
  std::map<std::pair<int, int>, std::vector<std::vector<double>>> tables;
  for (const HethubDegrees& degrees : degrees(tensor, static_cast<int>(most))) {
    if (stop()) return;
    auto& table = tables[{degrees.micro_batch_size, static_cast<int>(degrees.recompute)}];
    for (std::size_t k = table.size(); k < groups.size(); ++k) {
      std::vector<double>& times = table.emplace_back();
      for (const Seconds time : hethub_reference(costs_, groups[k], degrees)) {
        times.push_back(time.value);
      }
    }
    HethubTree tree{degrees, {}, 0};
    for (std::size_t k = 0; k < groups.size(); ++k) {
      const auto places = groups[k].size() / degrees.replicas;
      tree.types.push_back({static_cast<int>(places), table[k]});
    }
    tree.shortest = HethubBalance(tree.types, layers_).at(0, layers_);
    if (tree.shortest < kNever) trees.push_back(std::move(tree));
  }
}

/// The most promising first, so that bounds bite early.
std::vector<HethubTree> HethubSearch::trees() {
  std::map<std::pair<NodeId, int>, int> alike;
  int largest = 0;
  for (const DeviceId id : input_.devices) {
    const models::Device& device = input_.cluster.device(id);
    largest = std::max(largest, ++alike[{device.node, device.gpu_type}]);
  }
  std::vector<HethubTree> trees;
  for (const int tensor : tensor_degrees(input_.workload, input_.job, largest)) {
    if (settings_.tensor == 0 || tensor == settings_.tensor) add_trees(tensor, trees);
  }
  std::stable_sort(trees.begin(), trees.end(), [](const HethubTree& a, const HethubTree& b) {
    return a.degrees.micro_batches * a.shortest < b.degrees.micro_batches * b.shortest;
  });
  return trees;
}

/// Most layers of a stage with one micro-batch in flight, wherever they lie; more never fit.
int HethubSearch::most_layers(const HethubDegrees& degrees, int gpu_type) {
  std::vector<Bytes>& least =
      least_memory_[{degrees.tensor, degrees.micro_batch_size, static_cast<int>(degrees.recompute),
                     degrees.zero, degrees.zero > 0 ? degrees.replicas : 0}];
  for (int n = static_cast<int>(least.size()); n <= layers_; ++n) {
    Bytes need{n == 0 ? 0 : kNever};
    for (int first = 0; n > 0 && first + n <= layers_; ++first) {
      need = std::min(need, costs_.memory(hethub_shape(first, n, degrees)));
    }
    least.push_back(need);
  }
  int most = 0;
  while (most < layers_ && least[most + 1] <= costs_.capacity(gpu_type)) {
    ++most;
  }
  return most;
}

void HethubSearch::explore(const HethubTree& tree) {
  HethubTree fitting = tree;
  for (std::size_t k = 0; k < fitting.types.size(); ++k) {
    if (fitting.types[k].places == 0) continue;
    const int most = most_layers(tree.degrees, static_cast<int>(k));
    std::fill(fitting.types[k].time.begin() + most + 1, fitting.types[k].time.end(), kNever);
  }
  const HethubBalance balance(fitting.types, layers_);
  fitting.shortest = balance.at(0, layers_);
  if (fitting.shortest == kNever) return balanced_leaf(tree);
  descend(fitting, balance, 0, layers_, 0);
}

/// Gives layers to the types from `type` on, the most balanced ways first.
void HethubSearch::descend(const HethubTree& tree, const HethubBalance& balance, std::size_t type,
                           int left, double longest) {
  if (type == tree.types.size()) return leaf(tree, longest);
  std::vector<std::pair<double, int>> ways;
  for (int own = 0; own <= left; ++own) {
    if (settings_.layers == HethubLayers::even && !even(tree, type, own)) continue;
    const double least =
        std::max({longest, tree.types[type].longest(own), balance.at(type + 1, left - own)});
    if (least < kNever) ways.emplace_back(least, own);
  }
  std::sort(ways.begin(), ways.end());
  for (const auto& [least, own] : ways) {
    if (stopped_ || !wanted(tree, least)) return;
    if (settings_.stage_bound > 0 &&
        least > (1 + kHethubRounding) * settings_.stage_bound * tree.shortest) {
      ++cut_;
      continue;
    }
    counts_[type] = own;
    descend(tree, balance, type + 1, left - own, std::max(longest, tree.types[type].longest(own)));
  }
}

/// Whether `layers` on a type give its stages an even share of all layers, rounded up or down.
bool HethubSearch::even(const HethubTree& tree, std::size_t type, int layers) const {
  int places = 0;
  for (const HethubType& each : tree.types) places += each.places;
  const int own = tree.types[type].places;
  return layers >= own * (layers_ / places) && layers <= own * ((layers_ + places - 1) / places);
}

/// Where no leaf fits in memory: the most balanced one, as the witness.
void HethubSearch::balanced_leaf(const HethubTree& tree) {
  const HethubBalance balance(tree.types, layers_);
  int left = layers_;
  for (std::size_t k = 0; k < tree.types.size(); ++k) {
    int own = 0;
    const auto least = [&](int n) {
      return std::max(tree.types[k].longest(n), balance.at(k + 1, left - n));
    };
    for (int n = 1; n <= left; ++n) {
      if (least(n) < least(own)) own = n;
    }
    counts_[k] = own;
    left -= own;
  }
  leaf(tree, tree.shortest);
}

/// Stages of the leaf in pipeline order. [3.3.2, rules 1 and 3]
HethubSearch::Order HethubSearch::arrange(const HethubTree& tree,
                                          const HethubStages& stages) const {
  Order order;
  std::vector<double> time;
  int place = 0;
  for (std::size_t k = 0; k < tree.types.size(); ++k) {
    const int places = tree.types[k].places;
    for (int i = 0; i < std::min(places, counts_[k]); ++i) {
      order.push_back({place + i, counts_[k] / places + (i < counts_[k] % places ? 1 : 0)});
    }
    place += places;
  }
  const auto time_of = [&](const HethubSlot& slot) {
    const int type = stages.places()[slot.place].gpu_type;
    return tree.types[type].time[slot.layers];
  };
  if (settings_.order == HethubOrder::cluster) return order;
  const bool descending = settings_.order == HethubOrder::descending;
  std::stable_sort(order.begin(), order.end(), [&](const HethubSlot& a, const HethubSlot& b) {
    return descending ? time_of(a) > time_of(b) : time_of(a) < time_of(b);
  });
  return order;
}

void HethubSearch::leaf(const HethubTree& tree, double longest) {
  if (stop()) return;
  ++report_.plans_examined;
  const HethubStages& own = stages(tree.degrees);
  Order order = arrange(tree, own);
  if (!own.fits(order, tree.degrees)) return refuse(order, own, tree, longest);
  const std::vector<PredictedStage> predicted = own.predict(order, tree.degrees);
  const int micro_batches = tree.degrees.micro_batches;
  if (!ranking_.wants((1 - kHethubRounding) * predict_at_least(predicted, micro_batches))) return;
  ranking_.offer(
      predict_iteration(predicted, micro_batches),
      [&own, order, degrees = tree.degrees] { return own.build(order, degrees); },
      [this, &own, order, degrees = tree.degrees] { return in_words(order, own, degrees); });
}

void HethubSearch::refuse(const Order& order, const HethubStages& stages, const HethubTree& tree,
                          double longest) {
  // Worth a prediction only where it could be the best that memory forbids.
  Seconds estimate = tree.degrees.micro_batches * Seconds{longest};
  const bool known = !report_.constraints.empty() && report_.constraints.front().best_without;
  if (!known || estimate < *report_.constraints.front().best_without) {
    estimate = predict_iteration(stages.predict(order, tree.degrees), tree.degrees.micro_batches);
  }
  forbid_by_memory(report_, estimate, [&] {
    const ir::MemoryVerdict verdict =
        models::check_memory(stages.build(order, tree.degrees), input_.cluster, input_.workload,
                             input_.job, input_.profile);
    return fmt::format("{}: {}", in_words(order, stages, tree.degrees), verdict.explain());
  });
}

std::string HethubSearch::in_words(const Order& order, const HethubStages& stages,
                                   const HethubDegrees& degrees) const {
  std::string text =
      fmt::format("TP {} x DP {} x PP {}:", degrees.tensor, degrees.replicas, order.size());
  const auto type_of = [&](const HethubSlot& slot) { return stages.places()[slot.place].gpu_type; };
  for (std::size_t s = 0; s < order.size();) {
    std::size_t end = s;
    int layers = 0;
    while (end < order.size() && type_of(order[end]) == type_of(order[s])) {
      layers += order[end++].layers;
    }
    text += fmt::format("{} {} layers on {} x {}", s == 0 ? "" : ",", layers, end - s,
                        input_.cluster.gpu_types[type_of(order[s])].name);
    s = end;
  }
  text += fmt::format("; micro-batch {}", degrees.micro_batch_size);
  if (degrees.recompute != ir::Recompute::none) {
    text += fmt::format(", {} recompute", ir::name_of(degrees.recompute));
  }
  if (degrees.zero > 0) text += fmt::format(", ZeRO-{}", degrees.zero);
  return text;
}

models::Infeasible HethubSearch::none() const {
  if (report_.rejected_by_memory > 0) {
    return {kDeviceMemory, report_.constraints.front().witness};
  }
  if (!report_.complete) return {"three-level tree", "the search was ended before the first plan"};
  return {"three-level tree",
          fmt::format("no uniform TP x DP over {} devices divides a batch of {} into micro-batches "
                      "that the job and the options allow",
                      input_.devices.size(), input_.job.global_batch)};
}

PlannerResult HethubSearch::run() {
  report_.work_unit = "plans";
  const auto& schedules = input_.job.allowed.schedules;
  if (std::find(schedules.begin(), schedules.end(), ir::ScheduleKind::one_f_one_b) ==
      schedules.end()) {
    return {
        models::Infeasible{"schedule", "HetHub's pipelines run 1F1B, the job does not allow it"},
        report_};
  }
  counts_.assign(input_.cluster.gpu_types.size(), 0);
  const std::vector<HethubTree> all = trees();
  for (const HethubTree& tree : all) {
    if (stopped_ || !wanted(tree, tree.shortest)) break;
    explore(tree);
  }
  report_.work = report_.plans_examined;
  report_.notes.push_back(
      fmt::format("{} choices of degrees; stages {}", all.size(),
                  settings_.order == HethubOrder::descending ? "slowest first" : "reordered"));
  if (settings_.communicator == HethubCommunicator::rdma) {
    report_.notes.push_back("the estimate takes RDMA between all vendors");
  }
  if (cut_ > 0) {
    report_.constraints.push_back(
        {"bottleneck restriction", cut_, std::nullopt,
         fmt::format("branches with a stage longer than {} times the shortest possible longest one",
                     settings_.stage_bound)});
  }
  models::Infeasible nothing = none();
  return ranking_.finish(kHethub.name, settings_.evaluate_top, report_, std::move(nothing));
}

}  // namespace

const PlannerEntry kHethub = planner_entry<SearchPlanner<HethubSearch, HethubSettings>>(
    "hethub", "HetHub (Xu et al. 2024), sections 3.1 to 3.3",
    "layers for each GPU type x uniform DP x uniform TP, stages of a type within one layer, "
    "slowest stage first, under 1F1B",
    "contention between flows, replicas or stages of unequal width, stages of mixed GPU types, "
    "overlap of gradients with the backward pass",
    hethub_estimate);

}  // namespace orrery::planners
