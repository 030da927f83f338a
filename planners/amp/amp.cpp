// AMP: uniform TP x DP x PP over nodes with equally many GPUs. A dynamic program partitions the
// layers of the pipeline; the cost model that ranks plans knows the bandwidths between ranks but
// averages the speed of GPU types.
//   cost = (B - 1) max stage + sum of stages + sum of cuts + slowest gradient ring
// [Li et al., "AMP: Automatically Finding Model Parallel Strategies with Heterogeneity Awareness",
// NeurIPS 2022, section 4; public code DachengLi1/AMP for constants; Metis (ATC 2024), section 5,
// for how AMP runs on nodes of different sizes]
//
// Deviation: embedding and head belong to the first and last layer (the public code may give them
// a stage of their own); AMP says nothing on recomputation and ZeRO, so a plan takes the weakest
// recomputation that the job allows and with which it fits, and the smallest ZeRO stage.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "models/base/ids.h"
#include "models/cost/memory.h"
#include "models/ir/names.h"
#include "models/schedule/schedule.h"
#include "planners/amp/cost.h"
#include "planners/amp/published.h"
#include "planners/catalog.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"
#include "planners/kit/settings.h"
#include "planners/kit/stage_costs.h"
#include "planners/kit/uniform_nodes.h"

namespace orrery::planners {

namespace {

enum class AmpMode { fixed, as_published };
enum class AmpAverage { by_count, as_published };

ir::EnumNames<AmpMode> enum_names(AmpMode) {
  return {{AmpMode::fixed, "fixed"}, {AmpMode::as_published, "as_published"}};
}
ir::EnumNames<AmpAverage> enum_names(AmpAverage) {
  return {{AmpAverage::by_count, "by_count"}, {AmpAverage::as_published, "as_published"}};
}

struct AmpSettings {
  AmpMode mode = AmpMode::fixed;
  AmpAverage average = AmpAverage::by_count;
  int evaluate_top = 1;
};

void describe(config::Visitor& v, AmpSettings& s) {
  v.optional(
      "mode", s.mode,
      "fixed: the cost of the paper, in the bytes of the job. as_published: as DachengLi1/AMP: "
      "the gradient ring has the bandwidth of its last-to-first link alone; embedding and head "
      "count once where one stage has both; every element has 4 bytes; a micro-batch of n "
      "samples takes n times one sample; the partition forgets the cuts that it has paid; for "
      "one micro-batch layers are spread evenly.");
  v.optional(
      "average", s.average,
      "Layer time over GPU types. by_count: each type weighs as its GPUs. as_published: 0.75 "
      "for the most numerous type, 0.25 for the others together, the constants of the public "
      "code (which are the counts of its own cluster, 12 V100 and 4 T4).");
  v.optional(
      "evaluate_top", s.evaluate_top,
      "Plans that the evaluator judges, best first by AMP's cost; 1: the cost decides, as in "
      "the paper; 0: all that fit.");
  v.between("evaluate_top", s.evaluate_top, 0, 1'000'000);
}

/// One point of the space.
struct AmpGrid {
  int tensor = 1;
  int replicas = 1;
  int stages = 1;
  int micro_batch_size = 1;
  std::vector<int> boundaries;  // In layers.
};

std::string in_words(const AmpGrid& grid) {
  return fmt::format("TP {} x PP {} x DP {}, micro-batch {}", grid.tensor, grid.stages,
                     grid.replicas, grid.micro_batch_size);
}

class AmpSearch {
 public:
  AmpSearch(const PlannerInput& input, const AmpSettings& settings)
      : input_(input),
        settings_(settings),
        published_(settings.mode == AmpMode::as_published),
        layers_(count_layers(input.workload)),
        costs_(input),
        ranking_(input),
        nodes_(uniform_nodes(input)),
        devices_(nodes_.devices) {}

  PlannerResult run();

 private:
  void sweep(int tensor);
  void examine(AmpGrid grid);
  DeviceId device(const AmpGrid& grid, int stage, int replica, int member) const {
    return devices_[(stage * grid.replicas + replica) * grid.tensor + member];
  }
  BytesPerSecond bandwidth(DeviceId a, DeviceId b) const { return costs_.path(a, b).bandwidth; }
  std::vector<double> type_weights() const;
  std::vector<double> layer_times(int tensor, int samples);
  std::vector<std::vector<double>> cuts(const AmpGrid& grid) const;
  double synchronization(const AmpGrid& grid) const;
  double gradient_bytes(int first, int layers) const;
  ir::Plan build(const AmpGrid& grid) const;
  ir::Plan build(const AmpGrid& grid, ir::Recompute recompute) const;
  models::Infeasible none() const;

  const PlannerInput& input_;
  const AmpSettings& settings_;
  bool published_;
  int layers_;
  StageCosts costs_;
  Ranking ranking_;
  SearchReport report_;
  UniformNodes nodes_;
  const std::vector<DeviceId>& devices_;
  ir::ScheduleKind schedule_ = ir::ScheduleKind::one_f_one_b;
  std::map<std::pair<int, int>, std::vector<double>> times_;  // By (tensor, samples).
  ConstraintCost batch_{"global batch", 0, std::nullopt, ""};
  ConstraintCost too_many_stages_{"number of layers", 0, std::nullopt, ""};
};

/// Weights of the GPU types, which add up to 1.
std::vector<double> AmpSearch::type_weights() const {
  std::vector<double> weights(input_.cluster.gpu_types.size(), 0);
  for (const DeviceId d : devices_) weights[input_.cluster.device(d).gpu_type] += 1;
  const auto present =
      std::count_if(weights.begin(), weights.end(), [](double w) { return w > 0; });
  const auto most = std::max_element(weights.begin(), weights.end()) - weights.begin();
  for (std::size_t t = 0; t < weights.size(); ++t) {
    if (settings_.average == AmpAverage::by_count || present == 1) {
      weights[t] /= static_cast<double>(devices_.size());
    } else if (weights[t] > 0) {
      weights[t] =
          static_cast<std::ptrdiff_t>(t) == most ? 0.75 : 0.25 / static_cast<double>(present - 1);
    }
  }
  return weights;
}

/// Forward and backward time of each layer for a micro-batch: 3 x forward, with the all-reduces of
/// tensor parallelism, averaged over GPU types. A type's all-reduce time is the mean over the
/// groups of its GPUs.
std::vector<double> AmpSearch::layer_times(int tensor, int samples) {
  const auto [place, added] = times_.try_emplace({tensor, samples});
  std::vector<double>& times = place->second;
  if (!added) return times;
  const std::vector<double> weights = type_weights();
  StageShape shape;
  shape.tensor_parallel = tensor;
  shape.samples = published_ ? 1 : samples;
  const double factor = 3.0 * (published_ ? samples : 1);
  for (shape.first = 0; shape.first < layers_; ++shape.first) {
    std::vector<double> reduce(weights.size(), 0);
    std::vector<double> members(weights.size(), 0);
    for (std::size_t i = 0; i < devices_.size(); i += tensor) {
      const std::span<const DeviceId> group(devices_.data() + i, tensor);
      const double time = costs_.tensor_parallel(group, shape).forward.value;
      for (const DeviceId d : group) {
        const std::size_t type = input_.cluster.device(d).gpu_type;
        reduce[type] += time;
        members[type] += 1;
      }
    }
    double forward = 0;
    for (std::size_t type = 0; type < weights.size(); ++type) {
      if (members[type] == 0) continue;
      const double compute = costs_.compute(static_cast<int>(type), shape).forward.value;
      forward += weights[type] * (compute + reduce[type] / members[type]);
    }
    times.push_back(factor * forward);
  }
  return times;
}

/// [stage][layer] Time of the cut between a stage and the next one, after each layer: the
/// activations of a micro-batch over the slowest link between members of equal position, averaged
/// over the replicas.
std::vector<std::vector<double>> AmpSearch::cuts(const AmpGrid& grid) const {
  const double scale = published_ ? 4 / ir::size_of(input_.job.dtype).value : 1;
  std::vector<std::vector<double>> result;
  for (int s = 0; s + 1 < grid.stages; ++s) {
    double seconds_per_byte = 0;
    for (int r = 0; r < grid.replicas; ++r) {
      BytesPerSecond slowest = bandwidth(device(grid, s, r, 0), device(grid, s + 1, r, 0));
      for (int m = 1; m < grid.tensor; ++m) {
        slowest = std::min(slowest, bandwidth(device(grid, s, r, m), device(grid, s + 1, r, m)));
      }
      seconds_per_byte += 1 / slowest.value / grid.replicas;
    }
    std::vector<double>& cut = result.emplace_back();
    for (int layer = 1; layer < layers_; ++layer) {
      cut.push_back(scale * grid.micro_batch_size * costs_.activation(layer).value *
                    seconds_per_byte);
    }
  }
  return result;
}

/// As published: four bytes per element, and a stage with the embedding does not count the head.
double AmpSearch::gradient_bytes(int first, int layers) const {
  if (!published_) return costs_.gradients(first, layers).value;
  const ir::Segment blocks = segment_of_layers(input_.workload, first, layers);
  std::int64_t elements =
      models::parameters(input_.workload, blocks.first_block, blocks.last_block);
  if (layers == layers_) elements -= models::parameters(input_.workload.blocks.back());
  return 4.0 * static_cast<double>(elements);
}

double AmpSearch::synchronization(const AmpGrid& grid) const {
  double slowest = 0;
  for (int s = 0; s < grid.stages; ++s) {
    const int first = grid.boundaries[s];
    const double bytes = gradient_bytes(first, grid.boundaries[s + 1] - first) / grid.tensor;
    for (int m = 0; m < grid.tensor && grid.replicas > 1; ++m) {
      std::vector<double> ring;
      for (int r = 0; r < grid.replicas; ++r) {
        ring.push_back(
            bandwidth(device(grid, s, r, m), device(grid, s, (r + 1) % grid.replicas, m)).value);
      }
      slowest = std::max(slowest, amp_ring(ring, bytes, published_));
    }
  }
  return slowest;
}

void AmpSearch::examine(AmpGrid grid) {
  ++report_.plans_examined;
  AmpChain chain;
  chain.time = layer_times(grid.tensor, grid.micro_batch_size);
  chain.cut = cuts(grid);
  chain.micro_batches =
      static_cast<int>(input_.job.global_batch / grid.replicas / grid.micro_batch_size);
  if (published_ && chain.micro_batches == 1) {
    grid.boundaries = amp_split_even(layers_, grid.stages);
  } else {
    grid.boundaries =
        (published_ ? amp_split_published(chain) : amp_split(chain)).value().boundaries;
  }
  const Seconds cost{amp_pipeline_cost(chain, grid.boundaries) + synchronization(grid)};
  ranking_.offer(
      cost, [this, grid] { return build(grid); }, [grid] { return in_words(grid); });
}

void AmpSearch::sweep(int tensor) {
  const int groups = static_cast<int>(devices_.size()) / tensor;
  for (const std::int64_t replicas : divisors(groups)) {
    if (input_.job.global_batch % replicas != 0) {
      ++batch_.rejected;
      if (batch_.witness.empty()) {
        batch_.witness = fmt::format("TP {} x DP {}: DP does not divide a batch of {}", tensor,
                                     replicas, input_.job.global_batch);
      }
      continue;
    }
    const int stages = groups / static_cast<int>(replicas);
    if (stages > layers_) {
      ++too_many_stages_.rejected;
      if (too_many_stages_.witness.empty()) {
        too_many_stages_.witness = fmt::format("TP {} x DP {}: {} stages for {} layers", tensor,
                                               replicas, stages, layers_);
      }
      continue;
    }
    for (const std::int64_t size : divisors(input_.job.global_batch / replicas)) {
      if (size > input_.job.allowed.max_micro_batch_size) break;
      if (must_end(input_, report_.plans_examined)) {
        report_.complete = false;
        return;
      }
      examine({tensor, static_cast<int>(replicas), stages, static_cast<int>(size), {}});
    }
  }
}

ir::Plan AmpSearch::build(const AmpGrid& grid, ir::Recompute recompute) const {
  ir::Plan plan;
  plan.schedule = schedule_;
  plan.communication.activation_transfer = ir::ActivationTransfer::sliced;
  for (int r = 0; r < grid.replicas; ++r) {
    ir::Pipeline chain;
    chain.micro_batch_size = grid.micro_batch_size;
    chain.micro_batches =
        static_cast<int>(input_.job.global_batch / grid.replicas / grid.micro_batch_size);
    for (int s = 0; s < grid.stages; ++s) {
      const int first = grid.boundaries[s];
      const auto devices =
          std::span(devices_).subspan(as_size((s * grid.replicas + r) * grid.tensor), grid.tensor);
      chain.stages.push_back(
          stage_of_layers(input_.workload, first, grid.boundaries[s + 1] - first,
                          tensor_groups(devices, grid.tensor, grid.micro_batch_size), recompute,
                          smallest_zero_stage(input_.job)));
    }
    plan.pipelines.push_back(std::move(chain));
  }
  return plan;
}

ir::Plan AmpSearch::build(const AmpGrid& grid) const {
  std::vector<ir::Recompute> kinds = input_.job.allowed.recompute;
  std::sort(kinds.begin(), kinds.end());
  ir::Plan plan;
  for (const ir::Recompute kind : kinds) {
    plan = build(grid, kind);
    if (models::check_memory(plan, input_.cluster, input_.workload, input_.job, input_.profile)
            .fits()) {
      break;
    }
  }
  return plan;
}

models::Infeasible AmpSearch::none() const {
  if (!report_.complete) return {"symmetric grid", "the search was ended before the first plan"};
  return {"symmetric grid",
          fmt::format("no TP x DP x PP over all {} GPUs in nodes of {} has at most {} stages (one "
                      "a layer) and a DP that divides the batch of {}",
                      devices_.size(), nodes_.per_node, layers_, input_.job.global_batch)};
}

PlannerResult AmpSearch::run() {
  report_.work_unit = "plans";
  const std::vector<ir::ScheduleKind> schedules =
      models::plain_schedules(input_.job.allowed.schedules);
  if (input_.devices.empty() || schedules.empty() || input_.job.allowed.recompute.empty()) {
    return {models::Infeasible{"job", fmt::format("{} devices, {} usable schedules and {} kinds of "
                                                  "recomputation are allowed",
                                                  input_.devices.size(), schedules.size(),
                                                  input_.job.allowed.recompute.size())},
            report_};
  }
  schedule_ = *models::preferred_schedule(input_.job.allowed.schedules);
  if (nodes_.nodes() != nodes_.machines) {
    report_.notes.push_back(fmt::format("{} nodes are seen as {} of {} GPUs each", nodes_.machines,
                                        nodes_.nodes(), nodes_.per_node));
  }
  for (const int tensor : uniform_degrees(nodes_, input_, report_.constraints)) {
    if (!report_.complete) break;
    sweep(tensor);
  }
  report_.work = report_.plans_examined;
  for (const ConstraintCost& cost : {batch_, too_many_stages_}) {
    if (cost.rejected > 0) report_.constraints.push_back(cost);
  }
  const models::Infeasible nothing = none();
  PlannerResult result =
      ranking_.finish("amp", settings_.evaluate_top, std::move(report_), nothing);
  if (result.report.rejected_by_memory > 0) {
    result.report.notes.push_back(
        fmt::format("AMP has no memory model: {} of the plans of least cost do not fit",
                    result.report.rejected_by_memory));
  }
  return result;
}

}  // namespace

extern const PlannerEntry kAmp;

const PlannerEntry kAmp = planner_entry<SearchPlanner<AmpSearch, AmpSettings>>(
    "amp", "Li et al., NeurIPS 2022 (AMP), section 4; public code DachengLi1/AMP",
    "all TP x DP x PP x micro-batch sizes over all GPUs, each with the layer partition of least "
    "cost",
    "memory (it falls to its next best plan that fits); the speed of the GPU type: layer times are "
    "averaged over types; GPUs beyond a common node size form nodes of their own; optimizer, "
    "latencies, recomputation time");

}  // namespace orrery::planners
