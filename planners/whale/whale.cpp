// Whale: the user annotates the model (split, replicate, pipeline), the system balances the load
// over unequal GPUs. Run as the papers run it as a baseline: the best of all symmetric annotations
// TP x PP x DP. [Whale, Jia et al., USENIX ATC 2022; AutoHet, section V; Metis, section 5; HetHub,
// section 2.5]
//
// Deviation: the public code (EPL) lacks the balancer, so that this follows what the other papers
// say of it: batches by compute under a memory constraint [HetHub, Metis], stages in descending
// order of GPU memory [HetHub, Metis]. Which load moves where (from the fullest GPU to the least
// busy one with room) is our reading, source: unverified. The papers contradict each other in two
// points, which are options: Metis says that layers are not balanced between stages
// (layers=uniform), AutoHet that stages follow the nodes (stage_order=cluster).
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>

#include "models/cost/memory.h"
#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/kit/estimate.h"
#include "planners/kit/integers.h"
#include "planners/kit/options.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"
#include "planners/whale/annotation.h"

namespace orrery::planners {

extern const PlannerEntry kWhale;

namespace {

std::vector<OptionInfo> options() {
  return {
      {"batches", "by_compute",
       "Samples of the replicas of a stage: by_compute, in proportion to compute, moved from "
       "replicas without memory to the least busy ones (intra-TaskGraph load balance); uniform."},
      {"layers", "by_compute",
       "Layers of the stages: by_compute, balanced the same way (inter-TaskGraph load balance); "
       "uniform, within one layer of an even share, as Metis [5] describes Whale."},
      {"stage_order", "memory",
       "memory: GPUs with more memory to earlier stages [HetHub 2.5, Metis 5]; cluster: in the "
       "order of the nodes, as AutoHet [V] describes Whale."},
      {"compute", "peak",
       "WhaleCompute of a GPU: peak FLOP/s (Whale knows the hardware, not the model's speed on "
       "it), or "
       "profile: one over the time of the model's layers."},
      {"use_all", "auto",
       "yes: only annotations over all devices [AutoHet V: symmetric structures]. no: as many "
       "replicas as the devices allow, the rest stays idle. auto: yes, and no if none of those "
       "fits in memory."},
      {"activation_transfer", "leader_broadcast", "leader_broadcast or sliced; not in the papers."},
      {"evaluate_top", "8",
       "Plans that the evaluator judges, best in closed form first: Whale has no cost model, the "
       "papers report its best measured annotation [AutoHet V]. 1: the closed form decides; 0: "
       "all."},
  };
}

/// All but the degrees and the batch.
struct Variant {
  ir::Recompute recompute;
  int zero;
  ir::ScheduleKind schedule;
};

class Search {
 public:
  Search(const PlannerInput& input, const WhaleSettings& settings)
      : input_(input),
        settings_(settings),
        layers_(count_layers(input.workload)),
        annotations_(input, settings),
        estimator_(input),
        ranking_(input) {}

  PlannerResult run();

 private:
  std::vector<Variant> variants() const;
  void sweep(bool all_devices);
  void sweep_batches(const WhaleAnnotation& degrees, const std::vector<Variant>& choices);
  void examine(const WhaleAnnotation& annotation);
  bool stop();
  models::Infeasible none() const;

  const PlannerInput& input_;
  const WhaleSettings& settings_;
  int layers_;
  WhaleAnnotations annotations_;
  PlanEstimator estimator_;
  Ranking ranking_;
  SearchReport report_;
};

bool Search::stop() {
  const bool over =
      canceled(input_) || (input_.work_budget > 0 && report_.plans_examined >= input_.work_budget);
  if (over) report_.complete = false;
  return over;
}

std::vector<Variant> Search::variants() const {
  std::vector<int> zero_stages;
  for (const int stage : input_.job.allowed.zero_stages) {
    if (stage <= 1) zero_stages.push_back(stage);
  }
  if (zero_stages.empty()) zero_stages = {smallest_zero_stage(input_.job)};
  std::vector<Variant> result;
  for (const ir::ScheduleKind schedule : models::plain_schedules(input_.job.allowed.schedules)) {
    if (schedule == ir::ScheduleKind::zero_bubble) continue;
    for (const ir::Recompute recompute : input_.job.allowed.recompute) {
      for (const int zero : zero_stages) result.push_back({recompute, zero, schedule});
    }
  }
  return result;
}

void Search::sweep(bool all_devices) {
  std::map<std::pair<NodeId, int>, int> alike;
  int largest = 0;
  for (const DeviceId id : input_.devices) {
    const models::Device& device = input_.cluster.device(id);
    largest = std::max(largest, ++alike[{device.node, device.gpu_type}]);
  }
  const std::vector<Variant> choices = variants();
  for (const int tensor : tensor_degrees(input_.workload, input_.job, largest)) {
    const auto& units = annotations_.groups(tensor);
    if (all_devices && units.size() * static_cast<std::size_t>(tensor) != input_.devices.size()) {
      continue;
    }
    const int count = static_cast<int>(units.size());
    for (int stages = 1; stages <= std::min(count, layers_); ++stages) {
      if (all_devices && count % stages != 0) continue;
      WhaleAnnotation degrees;
      degrees.tensor = tensor;
      degrees.stages = stages;
      degrees.replicas = count / stages;
      sweep_batches(degrees, choices);
      if (!report_.complete) return;
    }
  }
}

void Search::sweep_batches(const WhaleAnnotation& degrees, const std::vector<Variant>& choices) {
  const std::int64_t most =
      std::int64_t{degrees.replicas} * input_.job.allowed.max_micro_batch_size;
  for (const std::int64_t batch : divisors(input_.job.global_batch)) {
    if (batch < degrees.replicas) continue;
    if (batch > most) return;
    if (input_.job.global_batch / batch > std::numeric_limits<int>::max()) continue;
    for (const Variant& variant : choices) {
      if (stop()) return;
      WhaleAnnotation one = degrees;
      one.batch = static_cast<int>(batch);
      one.recompute = variant.recompute;
      one.zero = variant.zero;
      one.schedule = variant.schedule;
      examine(one);
    }
  }
}

void Search::examine(const WhaleAnnotation& annotation) {
  ++report_.plans_examined;
  const WhaleShares shares = annotations_.balance(annotation);
  const ir::Plan plan = annotations_.build(annotation, shares);
  const Seconds estimate = estimator_.estimate(plan);
  if (shares.fits) {
    ranking_.offer(
        estimate, [this, shares, annotation] { return annotations_.build(annotation, shares); },
        [annotation] { return in_words(annotation); });
    return;
  }
  forbid_by_memory(report_, estimate, [&] {
    const ir::MemoryVerdict verdict =
        models::check_memory(plan, input_.cluster, input_.workload, input_.job, input_.profile);
    return fmt::format("{}: {}", in_words(annotation), verdict.explain());
  });
}

models::Infeasible Search::none() const {
  if (report_.rejected_by_memory > 0) {
    return {"device memory", report_.constraints.front().witness};
  }
  if (!report_.complete) return {"annotations", "the search was ended before the first plan"};
  return {"annotations",
          fmt::format("no TP x PP x DP over {} devices has {} layers to share, a batch of {} to "
                      "divide and a schedule that the job allows",
                      input_.devices.size(), layers_, input_.job.global_batch)};
}

PlannerResult Search::run() {
  report_.work_unit = "plans";
  if (settings_.use_all != WhaleDevices::no) sweep(true);
  if (settings_.use_all == WhaleDevices::no ||
      (settings_.use_all == WhaleDevices::automatic && ranking_.empty() && report_.complete)) {
    if (settings_.use_all == WhaleDevices::automatic) {
      report_.notes.emplace_back("no annotation over all devices fits: some may stay idle");
    }
    sweep(false);
  }
  report_.work = report_.plans_examined;
  models::Infeasible nothing = none();
  return ranking_.finish(kWhale.name, settings_.evaluate_top, report_, std::move(nothing));
}

class Whale final : public Planner {
 public:
  explicit Whale(WhaleSettings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override {
    return Search(input, settings_).run();
  }

 private:
  WhaleSettings settings_;
};

std::variant<std::unique_ptr<Planner>, PlannerEntry::BadOption> make(const Options& given) {
  OptionReader reader(options(), given);
  WhaleSettings settings;
  const Choices<WhaleSharing> loads = {{"by_compute", WhaleSharing::by_compute},
                                       {"uniform", WhaleSharing::uniform}};
  settings.batches = reader.choice<WhaleSharing>("batches", loads);
  settings.layers = reader.choice<WhaleSharing>("layers", loads);
  settings.order = reader.choice<WhaleOrder>(
      "stage_order", {{"memory", WhaleOrder::memory}, {"cluster", WhaleOrder::cluster}});
  settings.compute = reader.choice<WhaleCompute>(
      "compute", {{"peak", WhaleCompute::peak}, {"profile", WhaleCompute::profile}});
  settings.use_all = reader.choice<WhaleDevices>(
      "use_all",
      {{"auto", WhaleDevices::automatic}, {"yes", WhaleDevices::yes}, {"no", WhaleDevices::no}});
  settings.transfer = reader.choice<ir::ActivationTransfer>(
      "activation_transfer", {{"leader_broadcast", ir::ActivationTransfer::leader_broadcast},
                              {"sliced", ir::ActivationTransfer::sliced}});
  settings.evaluate_top = static_cast<int>(reader.integer("evaluate_top", 0, 1'000'000));
  if (reader.problem()) return *reader.problem();
  return std::make_unique<Whale>(settings);
}

}  // namespace

const PlannerEntry kWhale = {
    "whale",
    "Whale (Jia et al., USENIX ATC 2022), as AutoHet, Metis and HetHub describe and run it",
    "all TP x PP x DP x micro-batch annotations; layers and samples by compute, moved where memory "
    "asks for it, earlier stages on GPUs with more memory",
    "network, and speed on the model: compute is peak FLOP/s. Which load moves where is our "
    "reading "
    "(from the fullest GPU to the least busy one with room), not checked against Whale's text",
    options,
    make,
};

}  // namespace orrery::planners
