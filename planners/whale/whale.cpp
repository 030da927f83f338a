// Whale: the user annotates the model (split, replicate, pipeline), the system balances the load
// over unequal GPUs. Run as the papers run it as a baseline: the best of all symmetric annotations
// TP x PP x DP. [Whale, Jia et al., USENIX ATC 2022; AutoHet, section V; Metis, section 5; HetHub,
// section 2.5]
//
// Deviation: the public code (EPL) lacks the balancer, so this follows what the other papers say
// about it: batches by compute under a memory constraint [HetHub, Metis], stages in descending
// order of GPU memory [HetHub, Metis]. Which load moves where (from the fullest GPU to the least
// busy one with room) is our reading, source: unverified. The papers contradict each other in two
// points, which are settings: Metis says that layers are not balanced between stages
// (layers=uniform), AutoHet that stages follow the nodes (stage_order=cluster).
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "models/base/ids.h"
#include "models/cost/memory.h"
#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/kit/estimate.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"
#include "planners/kit/settings.h"
#include "planners/whale/annotation.h"

namespace orrery::planners {

ir::EnumNames<WhaleSharing> enum_names(WhaleSharing) {
  return {{WhaleSharing::by_compute, "by_compute"}, {WhaleSharing::uniform, "uniform"}};
}
ir::EnumNames<WhaleOrder> enum_names(WhaleOrder) {
  return {{WhaleOrder::memory, "memory"}, {WhaleOrder::cluster, "cluster"}};
}
ir::EnumNames<WhaleCompute> enum_names(WhaleCompute) {
  return {{WhaleCompute::peak, "peak"}, {WhaleCompute::profile, "profile"}};
}

void describe(config::Visitor& v, WhaleSettings& s) {
  v.optional("batches", s.batches,
             "Samples of the replicas of a stage: by_compute, in proportion to compute, moved from "
             "replicas without memory to the least busy ones (intra-TaskGraph load balance); "
             "uniform.");
  v.optional(
      "layers", s.layers,
      "Layers of the stages: by_compute, balanced the same way (inter-TaskGraph load balance); "
      "uniform, within one layer of an even share, as Metis [5] describes Whale.");
  v.optional(
      "stage_order", s.order,
      "memory: GPUs with more memory to earlier stages [HetHub 2.5, Metis 5]; cluster: in the "
      "order of the nodes, as AutoHet [V] describes Whale.");
  v.optional(
      "compute", s.compute,
      "Compute of a GPU: peak FLOP/s (Whale knows the hardware, not the model's speed on it), "
      "or profile: one over the time of the model's layers.");
  v.optional(
      "use_all", s.use_all,
      "yes: only annotations over all devices [AutoHet V: symmetric structures]. no: as many "
      "replicas as the devices allow, the rest stays idle. auto: yes, and no if none of those "
      "fits in memory.");
  v.optional("activation_transfer", s.transfer, "leader_broadcast or sliced; not in the papers.");
  v.optional(
      "evaluate_top", s.evaluate_top,
      "Plans that the evaluator judges, best in closed form first: Whale has no cost model, "
      "the papers report its best measured annotation [AutoHet V]. 1: the closed form decides; "
      "0: all.");
  v.between("evaluate_top", s.evaluate_top, 0, 1'000'000);
}

namespace {

class WhaleSearch {
 public:
  WhaleSearch(const PlannerInput& input, const WhaleSettings& settings)
      : input_(input),
        settings_(settings),
        layers_(count_layers(input.workload)),
        annotations_(input, settings),
        estimator_(input),
        ranking_(input) {}

  PlannerResult run();

 private:
  std::vector<WhaleAnnotation> variants() const;
  void sweep(bool all_devices);
  void sweep_batches(const std::vector<WhaleAnnotation>& choices);
  void examine(const WhaleAnnotation& annotation);
  models::Infeasible none() const;

  const PlannerInput& input_;
  const WhaleSettings& settings_;
  int layers_;
  WhaleAnnotations annotations_;
  PlanEstimator estimator_;
  Ranking ranking_;
  SearchReport report_;
};

/// All choices but the degrees and the batch.
std::vector<WhaleAnnotation> WhaleSearch::variants() const {
  const std::vector<int> zero_stages = zero_stages_up_to_1(input_.job);
  std::vector<WhaleAnnotation> result;
  for (const ir::ScheduleKind schedule : models::plain_schedules(input_.job.allowed.schedules)) {
    if (models::schedule_entry(schedule).splits_backward()) continue;
    for (const ir::Recompute recompute : input_.job.allowed.recompute) {
      for (const int zero : zero_stages) {
        result.push_back({1, 1, 1, 1, recompute, zero, schedule});
      }
    }
  }
  return result;
}

void WhaleSearch::sweep(bool all_devices) {
  std::map<std::pair<NodeId, int>, int> alike;
  int largest = 0;
  for (const DeviceId id : input_.devices) {
    const models::Device& device = input_.cluster.device(id);
    largest = std::max(largest, ++alike[{device.node, device.gpu_type}]);
  }
  std::vector<WhaleAnnotation> choices = variants();
  for (const int tensor : tensor_degrees(input_.workload, input_.job, largest)) {
    const auto& units = annotations_.groups(tensor);
    if (all_devices && units.size() * as_size(tensor) != input_.devices.size()) {
      continue;
    }
    const int count = static_cast<int>(units.size());
    for (int stages = 1; stages <= std::min(count, layers_); ++stages) {
      if (all_devices && count % stages != 0) continue;
      for (WhaleAnnotation& one : choices) {
        one.tensor = tensor;
        one.stages = stages;
        one.replicas = count / stages;
      }
      sweep_batches(choices);
      if (!report_.complete) return;
    }
  }
}

/// All batches of annotations with the same degrees.
void WhaleSearch::sweep_batches(const std::vector<WhaleAnnotation>& choices) {
  if (choices.empty()) return;
  const int replicas = choices.front().replicas;
  const std::int64_t most = std::int64_t{replicas} * input_.job.allowed.max_micro_batch_size;
  for (const std::int64_t batch : divisors(input_.job.global_batch)) {
    if (batch < replicas) continue;
    if (batch > most) return;
    if (input_.job.global_batch / batch > std::numeric_limits<int>::max()) continue;
    for (WhaleAnnotation one : choices) {
      if (must_end(input_, report_.plans_examined)) {
        report_.complete = false;
        return;
      }
      one.batch = static_cast<int>(batch);
      examine(one);
    }
  }
}

void WhaleSearch::examine(const WhaleAnnotation& annotation) {
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

models::Infeasible WhaleSearch::none() const {
  if (report_.rejected_by_memory > 0) {
    return {kDeviceMemory, report_.constraints.front().witness};
  }
  if (!report_.complete) return {"annotations", "the search was ended before the first plan"};
  return {"annotations",
          fmt::format("no TP x PP x DP over {} devices has {} layers to share, a batch of {} to "
                      "divide and a schedule that the job allows",
                      input_.devices.size(), layers_, input_.job.global_batch)};
}

PlannerResult WhaleSearch::run() {
  report_.work_unit = "plans";
  sweep_devices(settings_.use_all, ranking_, report_,
                "no annotation over all devices fits: some may stay idle",
                [&](bool all) { sweep(all); });
  report_.work = report_.plans_examined;
  models::Infeasible nothing = none();
  return ranking_.finish("whale", settings_.evaluate_top, report_, std::move(nothing));
}

}  // namespace

extern const PlannerEntry kWhale;

const PlannerEntry kWhale = planner_entry<SearchPlanner<WhaleSearch, WhaleSettings>>(
    "whale",
    "Whale (Jia et al., USENIX ATC 2022), as AutoHet, Metis and HetHub describe and run it",
    "all TP x PP x DP x micro-batch annotations; layers and samples by compute, moved where memory "
    "asks for it, earlier stages on GPUs with more memory",
    "network, and speed on the model: compute is peak FLOP/s. Which load moves where is our "
    "reading "
    "(from the fullest GPU to the least busy one with room), not checked against Whale's text");

}  // namespace orrery::planners
