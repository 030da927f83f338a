// Galvatron: an even pipeline, and in each stage a strategy for every layer out of TP, DP, sharded
// DP and recomputation, chosen by a dynamic program under the stage's memory. All devices count as
// equal.
// [Miao et al., "Galvatron: Efficient Transformer Training over Multiple GPUs Using Automatic
// Parallelism", VLDB 2023; recomputation from Galvatron-BMW; constants and cost of a
// pipeline from the public code PKU-DAIR/Hetu-Galvatron]
//
// Deviation: stage counts and degrees are all divisors, not only powers of two, so that 56 GPUs can
// be planned as in HexiScale, Appendix C. Embedding and head take the strategies of the first and
// last layer. Tensor-parallel groups are consecutive ranks inside a node. Memory for
// transients is reserved apart from that of the layers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "models/base/ids.h"
#include "models/ir/names.h"
#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/galvatron/costs.h"
#include "planners/galvatron/shape.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"
#include "planners/kit/settings.h"
#include "planners/kit/uniform_nodes.h"

namespace orrery::planners {

namespace {

enum class GalvatronMode { fixed, as_published };
enum class GalvatronGranularity { layer, model };
enum class GalvatronSpace { full, dp_tp, dp_pp };

ir::EnumNames<GalvatronMode> enum_names(GalvatronMode) {
  return {{GalvatronMode::fixed, "fixed"}, {GalvatronMode::as_published, "as_published"}};
}
ir::EnumNames<GalvatronGranularity> enum_names(GalvatronGranularity) {
  return {{GalvatronGranularity::layer, "layer"}, {GalvatronGranularity::model, "model"}};
}
ir::EnumNames<GalvatronSpace> enum_names(GalvatronSpace) {
  return {{GalvatronSpace::full, "full"},
          {GalvatronSpace::dp_tp, "dp_tp"},
          {GalvatronSpace::dp_pp, "dp_pp"}};
}

struct GalvatronSettings {
  GalvatronMode mode = GalvatronMode::fixed;
  GalvatronGranularity granularity = GalvatronGranularity::layer;
  GalvatronSpace space = GalvatronSpace::full;
  double overlap = 1.3;
  int context_mib = 1024;
  int memory_steps = 1024;
  int evaluate_top = 1;

  GalvatronConstants constants() const {
    return {overlap, static_cast<double>(context_mib) * 1_MiB};
  }
};

void describe(config::Visitor& v, GalvatronSettings& s) {
  v.optional(
      "mode", s.mode,
      "fixed: the layer program weighs a layer's computation by the micro-batches of an "
      "iteration and its gradient reduction once; a change of degree costs one gather, in the "
      "forward or the backward pass; stages differ by at most one layer. as_published: the "
      "program pays the gradient reduction with each micro-batch; only growing degrees cost, "
      "(t - 1) / t of the activations; the last stage takes the whole remainder "
      "(PKU-DAIR/Hetu-Galvatron, dynamic_programming.py, pp_division_even).");
  v.optional("granularity", s.granularity,
             "layer: a strategy for each layer. model: one strategy for all layers "
             "(fine_grained_mode 0 of the public code).");
  v.optional("space", s.space,
             "full; or the paper's limited variants: dp_tp (no pipeline, no sharded DP), dp_pp (no "
             "TP, no sharded DP), DP+TP and DP+PP.");
  v.optional("overlap", s.overlap,
             "Slow-down of computation and gradient reduction while both run, 1 to 10; 1.3 in the "
             "public code.");
  v.optional("context_mib", s.context_mib,
             "MiB that a process takes before the first tensor, 0 to 65536, as the public code "
             "assumes; 0: as the profile says.");
  v.optional(
      "memory_steps", s.memory_steps,
      "Steps in which the memory of a stage is counted, 16 to 65536; a layer's is rounded up. "
      "The public code counts MB.");
  v.optional(
      "evaluate_top", s.evaluate_top,
      "Plans that the evaluator judges, best first by Galvatron's cost; 1: the cost decides, "
      "as in the paper; 0: all that fit.");
  v.between("overlap", s.overlap, 1.0, 10.0);
  v.between("context_mib", s.context_mib, 0, 65536);
  v.between("memory_steps", s.memory_steps, 16, 65536);
  v.between("evaluate_top", s.evaluate_top, 0, 1'000'000);
}

std::string in_words(const GalvatronShape& shape, const GalvatronPlan& plan) {
  std::map<GalvatronStrategy, int> layers;
  for (const GalvatronStrategy& strategy : plan) ++layers[strategy];
  std::vector<std::string> parts;
  for (const auto& [s, count] : layers) {
    parts.push_back(fmt::format("TP {} x DP {}{}{}{}", s.tensor, s.replicas,
                                s.zero > 0 ? fmt::format(" ZeRO-{}", s.zero) : "",
                                s.recompute == ir::Recompute::none ? "" : " recomputed",
                                layers.size() > 1 ? fmt::format(" on {} layers", count) : ""));
  }
  return fmt::format("PP {}, {}, {} micro-batches of {}", shape.stages, fmt::join(parts, ", "),
                     shape.micro_batches, shape.batch);
}

class GalvatronSearch {
 public:
  GalvatronSearch(const PlannerInput& input, const GalvatronSettings& settings)
      : input_(input),
        settings_(settings),
        published_(settings.mode == GalvatronMode::as_published),
        layers_(count_layers(input.workload)),
        nodes_(uniform_nodes(input)),
        costs_(input, nodes_.devices, settings.constants()),
        schedule_(models::preferred_schedule(input.job.allowed.schedules)
                      .value_or(ir::ScheduleKind::one_f_one_b)),
        program_(costs_, static_cast<int>(nodes_.devices.size()), schedule_, settings.memory_steps,
                 published_),
        ranking_(input) {}

  PlannerResult run();

 private:
  void sweep();
  std::vector<int> divide(int stages) const;
  std::vector<GalvatronStrategy> strategies(int stages, int batch) const;
  void examine(const GalvatronShape& shape);
  void try_strategies(const GalvatronShape& shape);
  void reject(const GalvatronShape& shape);
  std::string lack(const GalvatronShape& shape, const GalvatronPlan& plan) const;
  ir::Plan build(const GalvatronShape& shape, const GalvatronPlan& layers) const;
  ir::Segment segment(const GalvatronShape& shape, const GalvatronStrategy& strategy, int stage,
                      int first, int layers) const;
  models::Infeasible none() const;

  const PlannerInput& input_;
  const GalvatronSettings& settings_;
  bool published_;
  int layers_;
  UniformNodes nodes_;
  GalvatronCosts costs_;
  ir::ScheduleKind schedule_;
  GalvatronProgram program_;
  Ranking ranking_;
  SearchReport report_;
  std::vector<int> degrees_;
  ConstraintCost memory_{kDeviceMemory, 0, std::nullopt, ""};
};

/// First layers of the stages, and the end.
std::vector<int> GalvatronSearch::divide(int stages) const {
  std::vector<int> first = {0};
  const int rest = layers_ % stages;
  for (int s = 0; s < stages; ++s) {
    const int extra = published_ ? (s + 1 == stages ? rest : 0) : (s >= stages - rest ? 1 : 0);
    first.push_back(first.back() + layers_ / stages + extra);
  }
  return first;
}

/// All strategies that the job allows on a stage and whose replicas share the micro-batch evenly.
/// Without replicas there is nothing to shard.
std::vector<GalvatronStrategy> GalvatronSearch::strategies(int stages, int batch) const {
  const models::Allowed& allowed = input_.job.allowed;
  std::vector<ir::Recompute> kinds = {ir::Recompute::none, ir::Recompute::full};
  std::erase_if(kinds, [&](ir::Recompute kind) {
    return std::count(allowed.recompute.begin(), allowed.recompute.end(), kind) == 0;
  });
  if (kinds.empty()) kinds = {weakest_recompute(input_.job)};
  std::vector<int> zero_stages = allowed.zero_stages;
  if (settings_.space != GalvatronSpace::full) zero_stages = {smallest_zero_stage(input_.job)};
  std::sort(zero_stages.begin(), zero_stages.end());
  const int per_stage = static_cast<int>(nodes_.devices.size()) / stages;
  std::vector<GalvatronStrategy> result;
  for (const int tensor : degrees_) {
    if (per_stage % tensor != 0 || (settings_.space == GalvatronSpace::dp_pp && tensor > 1))
      continue;
    const int replicas = per_stage / tensor;
    if (batch % replicas != 0 || batch / replicas > allowed.max_micro_batch_size) continue;
    for (const int zero : zero_stages) {
      if (replicas == 1 && zero != zero_stages.front()) continue;
      for (const ir::Recompute kind : kinds) result.push_back({tensor, replicas, zero, kind});
    }
  }
  return result;
}

/// Offers the plan that the layer program finds with the shape's strategies.
void GalvatronSearch::try_strategies(const GalvatronShape& shape) {
  ++report_.plans_examined;
  const auto plan = program_.choose(shape, true);
  if (!plan) return reject(shape);
  ranking_.offer(
      program_.estimate(shape, *plan), [this, shape, p = *plan] { return build(shape, p); },
      [shape, p = *plan] { return in_words(shape, p); });
}

void GalvatronSearch::examine(const GalvatronShape& shape) {
  ++report_.work;
  if (settings_.granularity == GalvatronGranularity::layer) return try_strategies(shape);
  for (const GalvatronStrategy& strategy : shape.strategies) {
    GalvatronShape uniform = shape;
    uniform.strategies = {strategy};
    try_strategies(uniform);
  }
}

void GalvatronSearch::reject(const GalvatronShape& shape) {
  ++memory_.rejected;
  ++report_.rejected_by_memory;
  const auto plan = program_.choose(shape, false);
  if (!plan) return;
  const Seconds time = program_.estimate(shape, *plan);
  if (memory_.best_without && *memory_.best_without <= time) return;
  memory_.best_without = time;
  memory_.witness = lack(shape, *plan);
}

/// Names the first stage whose layers do not fit even if each takes the least memory.
std::string GalvatronSearch::lack(const GalvatronShape& shape, const GalvatronPlan& plan) const {
  for (int stage = 0; stage < shape.stages; ++stage) {
    const LayerChoices layers = program_.choices(shape, stage);
    double need = costs_.budget() - layers.budget;
    for (const std::vector<double>& memory : layers.memory) {
      need += *std::min_element(memory.begin(), memory.end());
    }
    if (need <= costs_.budget()) continue;
    return fmt::format("{}: stage {} needs {:.1f} GiB at least, of {:.1f} GiB on the smallest GPU",
                       in_words(shape, plan), stage, need / 0x1p30, costs_.budget() / 0x1p30);
  }
  return fmt::format("{}: the layers of a stage, rounded up to {} steps of memory, exceed it",
                     in_words(shape, plan), settings_.memory_steps);
}

void GalvatronSearch::sweep() {
  const auto devices = static_cast<std::int64_t>(nodes_.devices.size());
  std::vector<std::int64_t> counts = divisors(input_.job.global_batch);
  std::reverse(counts.begin(), counts.end());
  for (const std::int64_t stages : divisors(devices)) {
    if (stages > layers_ || (settings_.space == GalvatronSpace::dp_tp && stages > 1)) break;
    for (const std::int64_t micro_batches : counts) {
      GalvatronShape shape;
      shape.stages = static_cast<int>(stages);
      shape.micro_batches = static_cast<int>(micro_batches);
      shape.batch = static_cast<int>(input_.job.global_batch / micro_batches);
      shape.first = divide(shape.stages);
      shape.strategies = strategies(shape.stages, shape.batch);
      if (shape.strategies.empty()) continue;
      if (must_end(input_, report_.work)) {
        report_.complete = false;
        return;
      }
      examine(shape);
    }
  }
}

ir::Segment GalvatronSearch::segment(const GalvatronShape& shape, const GalvatronStrategy& strategy,
                                     int stage, int first, int layers) const {
  const auto devices = std::span(nodes_.devices)
                           .subspan(as_size(stage * strategy.tensor * strategy.replicas),
                                    as_size(strategy.tensor * strategy.replicas));
  return segment_of_layers(input_.workload, first, layers,
                           tensor_groups(devices, strategy.tensor, shape.batch / strategy.replicas,
                                         megatron_sequence(input_.job, strategy.tensor)),
                           strategy.recompute, strategy.zero);
}

ir::Plan GalvatronSearch::build(const GalvatronShape& shape, const GalvatronPlan& layers) const {
  ir::Plan plan;
  plan.schedule = schedule_;
  plan.communication.activation_transfer = ir::ActivationTransfer::sliced;
  plan.communication.gradient_overlap = true;
  ir::Pipeline chain;
  chain.micro_batches = shape.micro_batches;
  chain.micro_batch_size = shape.batch;
  for (int stage = 0; stage < shape.stages; ++stage) {
    ir::Stage& place = chain.stages.emplace_back();
    int first = shape.first[stage];
    const int end = shape.first[stage + 1];
    for (int l = first + 1; l <= end; ++l) {
      if (l < end && layers[l] == layers[first]) continue;
      place.segments.push_back(segment(shape, layers[first], stage, first, l - first));
      first = l;
    }
  }
  plan.pipelines.push_back(std::move(chain));
  return plan;
}

models::Infeasible GalvatronSearch::none() const {
  if (memory_.rejected > 0) return {kDeviceMemory, memory_.witness};
  if (!report_.complete) return {"even pipeline", "the search was ended before the first plan"};
  return {"even pipeline",
          fmt::format("no stage count that divides {} GPUs (nodes of {}) and no number of "
                      "micro-batches that divides a batch of {} let replicas share a micro-batch "
                      "evenly, with at most {} samples each",
                      nodes_.devices.size(), nodes_.per_node, input_.job.global_batch,
                      input_.job.allowed.max_micro_batch_size)};
}

PlannerResult GalvatronSearch::run() {
  report_.work_unit = "pipeline shapes";
  const std::vector<ir::ScheduleKind> schedules =
      models::plain_schedules(input_.job.allowed.schedules);
  const models::Allowed& allowed = input_.job.allowed;
  if (nodes_.devices.empty() || schedules.empty() || allowed.recompute.empty() ||
      allowed.zero_stages.empty()) {
    return {models::Infeasible{
                "job", fmt::format("{} devices, {} usable schedules, {} kinds of recomputation and "
                                   "{} ZeRO stages are allowed",
                                   nodes_.devices.size(), schedules.size(),
                                   allowed.recompute.size(), allowed.zero_stages.size())},
            report_};
  }
  degrees_ = uniform_degrees(nodes_, input_, report_.constraints);
  sweep();
  if (memory_.rejected > 0) report_.constraints.push_back(memory_);
  const models::Infeasible nothing = none();
  return ranking_.finish("galvatron", settings_.evaluate_top, std::move(report_), nothing);
}

}  // namespace

extern const PlannerEntry kGalvatron;

const PlannerEntry kGalvatron = planner_entry<SearchPlanner<GalvatronSearch, GalvatronSettings>>(
    "galvatron", "Miao et al., VLDB 2023 (Galvatron); public code PKU-DAIR/Hetu-Galvatron",
    "even pipelines x micro-batch counts over all GPUs, and for each layer TP x DP, ZeRO and "
    "recomputation by dynamic program under memory",
    "differences between devices: layers take the average of the GPU types, links of a kind are as "
    "slow as the slowest, memory is that of the smallest GPU; the optimizer's time");

}  // namespace orrery::planners
