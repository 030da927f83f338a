// Metis: pipelines of one data- and tensor-parallel group per stage, of different sizes and GPU
// types, with layers and samples balanced by measured speed. Its search keeps data parallelism as
// large as memory allows. [Um et al., Metis, ATC 2024, section 4; public code SamsungLabs/Metis]
//
// The public code has defects that change plans, which mode=fixed repairs and mode=as_published
// keeps: from the second order of GPU types on the first groups are costed as one stage; bandwidth
// between nodes is that inside them; gradients are reduced among the wrong ranks; all nodes count
// as large as the first; the memory of a mixed stage is counted with the types of the whole
// cluster; micro-batches that were not measured, replicas without samples and clusters that are no
// power of two stop it; layers that no stage holds by more than half are lost, and samples that the
// replicas of a stage do not divide. What else its cost could tell better, options do by name:
// layer_gradients, head_input, replica_samples.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/cost/memory.h"
#include "models/ir/names.h"
#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"
#include "planners/kit/settings.h"
#include "planners/metis/search.h"

namespace orrery::planners {

extern const PlannerEntry kMetis;

namespace {

/// Plans that are kept for the report, in addition to those that the evaluator judges.
constexpr int kKept = 4;
constexpr int kMostKept = 4096;

/// No stages were found, with times of layers that depend on recomputation.
constexpr const char* kNothingFits = "device groups and memory";
constexpr const char* kBudget = "work budget";

}  // namespace

ir::EnumNames<MetisMode> enum_names(MetisMode) {
  return {{MetisMode::fixed, "fixed"}, {MetisMode::as_published, "as_published"}};
}
ir::EnumNames<MetisMemory> enum_names(MetisMemory) {
  return {{MetisMemory::automatic, "auto"},
          {MetisMemory::layers, "layers"},
          {MetisMemory::device, "device"}};
}
ir::EnumNames<MetisRecompute> enum_names(MetisRecompute) {
  return {{MetisRecompute::automatic, "auto"},
          {MetisRecompute::weakest, "weakest"},
          {MetisRecompute::strongest, "strongest"}};
}
ir::EnumNames<MetisTypeOrders> enum_names(MetisTypeOrders) {
  return {{MetisTypeOrders::all, "all"}, {MetisTypeOrders::first, "first"}};
}
ir::EnumNames<MetisBalance> enum_names(MetisBalance) {
  return {{MetisBalance::capacity, "capacity"}, {MetisBalance::uniform, "uniform"}};
}
ir::EnumNames<MetisSpace> enum_names(MetisSpace) {
  return {{MetisSpace::algorithm, "algorithm"}, {MetisSpace::full, "full"}};
}
ir::EnumNames<MetisLayerGradients> enum_names(MetisLayerGradients) {
  return {{MetisLayerGradients::first, "first"}, {MetisLayerGradients::each, "each"}};
}
ir::EnumNames<MetisHeadInput> enum_names(MetisHeadInput) {
  return {{MetisHeadInput::logits, "logits"}, {MetisHeadInput::hidden, "hidden"}};
}
ir::EnumNames<MetisReplicaSamples> enum_names(MetisReplicaSamples) {
  return {{MetisReplicaSamples::rounded_down, "rounded_down"},
          {MetisReplicaSamples::rounded_up, "rounded_up"}};
}

void describe(config::Visitor& v, MetisSettings& s) {
  v.optional("mode", s.mode,
             "fixed: the public code's cost with the defects repaired that change plans (they "
             "stand in metis.cpp). as_published: as the public code does, with them.");
  v.optional("variance", s.variance,
             "Device groups have at least this share of the average size (rounded down). "
             "[5.4: 0.5]");
  v.optional("max_permute_len", s.max_permute_length,
             "Groups that are permuted; more are merged in pairs of the smallest first. "
             "[5.4: 10]");
  v.optional("mem_coef", s.memory_coefficient,
             "Factor on the measured memory of layers. [public code: 5.0]");
  v.optional("memory", s.memory,
             "layers: memory of one replica's layers times mem_coef against that of the whole "
             "group [public code]. device: each device for itself, as all planners count [4.2.2]. "
             "auto: layers with an imported profile, else device.");
  v.optional("recompute", s.recompute,
             "weakest or strongest that the job allows; auto: the weakest (the paper has none), "
             "and the strongest if nothing fits.");
  v.optional("type_order", s.type_order,
             "Which permutation of the GPU types (in the order of the cluster file) is searched "
             "first; the public code takes them from a Python set, whose order changes from run "
             "to run.");
  v.optional("type_orders", s.type_orders,
             "all permutations of the GPU types; or first: type_order alone, as where an "
             "experiment fixes the order of the stages [5.3]. as_published: all.");
  v.optional("stages", s.stages,
             "Stages of the pipeline, 0: search; others where an experiment fixes them [5.3: 2]. "
             "as_published: 0.");
  v.optional("layer_balance", s.layer_balance,
             "capacity: layers in proportion to the speed of stages. uniform: as if all devices "
             "were average ones. [5.3, Figure 6: baseline]");
  v.optional("data_balance", s.data_balance,
             "capacity: samples in proportion to the speed of replicas. uniform: equal samples. "
             "[5.3]");
  v.optional("bounds", s.bounds,
             "no: evaluate also what lower bounds exclude; the result is the same. "
             "as_published: no.");
  v.optional("search", s.space,
             "algorithm: one path of degrees, and layers divided in proportion to speed [4.2.2]. "
             "full: every degree of every stage and every division of layers [Table 4: "
             "Metis-alpha; with variance=0 and max_permute_len=64: Oracle]; with bounds=no each "
             "plan is looked at. as_published: algorithm.");
  v.optional("layer_gradients", s.layer_gradients,
             "Gradients of the layers between embedding and head. first: all have those of the "
             "first of them [public code]. each: each layer its own. as_published: first.");
  v.optional("head_input", s.head_input,
             "What a stage that is the head alone receives. logits: vocabulary / TP elements for "
             "a token, as if it sent them [public code]. hidden: the hidden size. as_published: "
             "logits.");
  v.optional("replica_samples", s.replica_samples,
             "Samples of a replica for activations and the time outside the layers, where the "
             "replicas of a stage do not divide a micro-batch: rounded_down [public code] or "
             "rounded_up. Times of layers count what each replica trains. as_published: "
             "rounded_down.");
  v.optional("default_budget", s.default_budget,
             "Nodes that the search visits without a work budget (about 2 us each): arrangements "
             "of device groups, and a half for each state of the bounds on many arrangements at "
             "once. 0: no end.");
  v.optional("evaluate_top", s.evaluate_top,
             "Plans that the evaluator judges, best first by Metis's estimate; 0: all that are "
             "kept (4,096).");
  v.between("variance", s.variance, 0.0, 1024.0);
  v.between("max_permute_len", s.max_permute_length, 1, 64);
  v.between("mem_coef", s.memory_coefficient, 0.0, 1e6);
  v.between("type_order", s.type_order, 0, 5039);
  v.between("stages", s.stages, 0, 4096);
  v.between("default_budget", s.default_budget, std::int64_t{0}, std::int64_t{1} << 60);
  v.between("evaluate_top", s.evaluate_top, 0, kMostKept);
}

namespace {

class Metis final : public Planner {
 public:
  using Settings = MetisSettings;
  explicit Metis(MetisSettings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override;

 private:
  models::Infeasible search(const PlannerInput& input, ir::ScheduleKind schedule,
                            ir::Recompute recompute, bool first, Ranking& ranking,
                            SearchReport& report) const;
  std::size_t wanted() const {
    return settings_.evaluate_top == 0 ? kMostKept : std::max(kKept, settings_.evaluate_top);
  }

  MetisSettings settings_;
};

/// What was left out whatever the budget.
void note_limits(const MetisProblem& problem, MetisProgress& progress) {
  SearchReport& report = progress.report();
  const bool all =
      problem.settings.as_published() || problem.settings.type_orders == MetisTypeOrders::all;
  const std::size_t types = metis_type_orders(problem).front().size();
  if (all && types > 7) {
    report.complete = false;
    report.notes.push_back(
        fmt::format("only {} orders of the {} GPU types were searched", kMostMetisOrders, types));
  }
  if (progress.broken > 0) {
    report.notes.push_back(fmt::format(
        "the public code stops with an error at {} intra-stage plans; they were left out",
        progress.broken));
  }
  if (progress.inexpressible > 0) {
    report.notes.push_back(fmt::format(
        "{} plans of the public code lose layers or break the job's limits; they were left out",
        progress.inexpressible));
  }
}

/// What to say if nothing was found.
models::Infeasible Metis::search(const PlannerInput& input, ir::ScheduleKind schedule,
                                 ir::Recompute recompute, bool first, Ranking& ranking,
                                 SearchReport& report) const {
  const MetisTables tables = make_metis_tables(input, recompute);
  if (!tables.problem.empty()) return {"profile", tables.problem};
  if (report.notes.empty()) report.notes.push_back(tables.note);
  const std::int64_t budget = input.work_budget > 0 ? input.work_budget : settings_.default_budget;
  MetisProblem problem{input,    settings_, tables,
                       schedule, recompute, divisors(input.job.global_batch)};
  std::reverse(problem.batches.begin(), problem.batches.end());
  // Half of the budget is left for a second search with recomputation.
  MetisProgress progress(input, wanted(), budget, first ? budget / 2 : 0, ranking, report);
  std::string halted;
  if (settings_.as_published()) {
    halted = search_metis_as_published(problem, progress);
  } else {
    MetisSearch(problem, progress).run();
  }
  note_limits(problem, progress);
  if (!halted.empty()) return {"public code", halted};
  if (!report.complete) {
    return {kBudget,
            fmt::format("no plan that fits among the first {} nodes of the search", report.work)};
  }
  if (report.rejected_by_memory > 0) return {kDeviceMemory, ""};
  return {tables.imported ? "device groups" : kNothingFits,
          fmt::format("no stages of powers of two of the {} devices share {} layers and a batch of "
                      "{} within memory, micro-batch size and nodes",
                      input.devices.size(), tables.layers, input.job.global_batch)};
}

PlannerResult Metis::plan(const PlannerInput& input) const {
  SearchReport report;
  report.work_unit = "nodes";
  const auto schedule = models::preferred_schedule(input.job.allowed.schedules);
  if (!schedule) {
    return {models::Infeasible{"schedules", "the job allows none without virtual stages"}, report};
  }
  const ir::Recompute weakest = weakest_recompute(input.job);
  const ir::Recompute strongest = strongest_recompute(input.job);
  Ranking ranking(input, wanted());
  const bool twice = settings_.recompute == MetisRecompute::automatic && weakest != strongest;
  models::Infeasible none = search(
      input, *schedule, settings_.recompute == MetisRecompute::strongest ? strongest : weakest,
      twice, ranking, report);
  // A measured profile stays as it is: recomputation changes nothing but the last check of memory.
  const bool may_help = report.rejected_by_memory > 0 || none.constraint == kNothingFits ||
                        none.constraint == kBudget;
  if (ranking.empty() && twice && may_help && !canceled(input)) {
    report.notes.push_back(
        report.complete ? "nothing fits without recomputation: searched once more with it"
                        : "nothing that fits without recomputation was found with half of the "
                          "budget: searched with it");
    none = search(input, *schedule, strongest, false, ranking, report);
  }
  if (ranking.empty()) {
    for (const ConstraintCost& cost : report.constraints) {
      if (none.witness.empty()) none.witness = cost.witness;
    }
    return {std::move(none), std::move(report)};
  }
  return ranking.finish(kMetis.name, settings_.evaluate_top, std::move(report), std::move(none));
}

}  // namespace

const PlannerEntry kMetis = planner_entry<Metis>(
    "metis", "Um et al. 2024 (Metis, ATC), section 4",
    "orders of GPU types x device groups of powers of two x micro-batches; one path of (DP, TP) "
    "per stage, layers and samples balanced by speed",
    "contention, overlap, ZeRO, several pipelines; times and memory of layers add up; activations "
    "count elements, a cut counts the slowest link of both stages",
    metis_estimate);

}  // namespace orrery::planners
