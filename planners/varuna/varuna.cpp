// Varuna: data parallelism over equal pipelines without tensor parallelism. Each pipeline depth
// takes the largest micro-batch that fits; a simulation of Varuna's opportunistic schedule picks
// the depth. Made for homogeneous clusters: it sees one mean GPU, one path inside nodes and one
// between them. [Varuna, Athlur et al., EuroSys 2022; public code microsoft/varuna,
// varuna/auto_config.py]
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "models/cost/memory.h"
#include "models/ir/names.h"
#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"
#include "planners/kit/settings.h"
#include "planners/kit/stage_costs.h"
#include "planners/varuna/simulator.h"

namespace orrery::planners {

namespace {

enum class VarunaDepths { any, divisors_public };

ir::EnumNames<VarunaDepths> enum_names(VarunaDepths) {
  return {{VarunaDepths::any, "any"}, {VarunaDepths::divisors_public, "divisors_public"}};
}

struct VarunaSettings {
  VarunaDepths depths = VarunaDepths::any;
  int micro_batch_size = 0;
  int evaluate_top = 1;
};

void describe(config::Visitor& v, VarunaSettings& s) {
  v.optional(
      "depths", s.depths,
      "Pipeline depths: any up to the number of layers, layers spread as evenly as possible; "
      "or divisors_public, those that divide the layers (public code, auto_config.py).");
  v.optional("micro_batch_size", s.micro_batch_size,
             "0: the largest that fits for each depth (public code, get_microbatch_size); else "
             "samples per micro-batch.");
  v.optional("evaluate_top", s.evaluate_top,
             "Plans, best by Varuna's simulation, of which the evaluator picks the fastest; 1: the "
             "simulation alone decides, as in the paper; 0: all.");
  v.between("micro_batch_size", s.micro_batch_size, 0, 1'000'000);
  v.between("evaluate_top", s.evaluate_top, 0, 1000);
}

/// The cluster as Varuna's profiler would report it.
struct VarunaView {
  std::vector<double> share;  ///< Share of the devices, by GPU type.
  models::Path inside;        ///< Means over neighbors in id order.
  models::Path between;
  int gpus_per_node = 1;  ///< GPUs of the first node.
  Bytes capacity;         ///< That of the smallest GPU.
  const char* smallest = "";
};

models::Path mean_path(const std::vector<models::Path>& paths) {
  models::Path mean;
  if (paths.empty()) return mean;
  double seconds_per_byte = 0;
  for (const models::Path& path : paths) {
    seconds_per_byte += 1 / path.bandwidth.value;
    mean.latency += path.latency / static_cast<double>(paths.size());
  }
  mean.bandwidth = BytesPerSecond{static_cast<double>(paths.size()) / seconds_per_byte};
  return mean;
}

VarunaView varuna_view(const PlannerInput& input, const StageCosts& costs) {
  VarunaView view;
  view.share.assign(input.cluster.gpu_types.size(), 0);
  const NodeId first = input.cluster.device(input.devices.front()).node;
  std::vector<models::Path> inside;
  std::vector<models::Path> between;
  view.gpus_per_node = 0;
  bool any = false;
  for (std::size_t i = 0; i < input.devices.size(); ++i) {
    const models::Device& device = input.cluster.device(input.devices[i]);
    view.share[device.gpu_type] += 1.0 / static_cast<double>(input.devices.size());
    if (device.node == first) ++view.gpus_per_node;
    if (!any || costs.capacity(device.gpu_type) < view.capacity) {
      any = true;
      view.capacity = costs.capacity(device.gpu_type);
      view.smallest = input.cluster.gpu(device.id).name.c_str();
    }
    if (i == 0) continue;
    const bool near = input.cluster.device(input.devices[i - 1]).node == device.node;
    (near ? inside : between).push_back(input.topology.path(input.devices[i - 1], device.id));
  }
  view.inside = mean_path(inside.empty() ? between : inside);
  view.between = mean_path(between.empty() ? inside : between);
  return view;
}

/// One depth with one micro-batch size.
struct VarunaShape {
  int depth = 1;
  int replicas = 1;
  int micro_batch_size = 1;
  int micro_batches = 1;  ///< Those of the busiest pipeline.
};

class VarunaSearch {
 public:
  VarunaSearch(const PlannerInput& input, const VarunaSettings& settings)
      : input_(input),
        settings_(settings),
        costs_(input),
        view_(varuna_view(input, costs_)),
        recompute_(strongest_recompute(input.job)),
        zero_(smallest_zero_stage(input.job)),
        ranking_(input) {
    report_.work_unit = "simulations";
  }
  PlannerResult run();

 private:
  StageShape stage(const VarunaShape& shape, int first, int layers, int position) const;
  std::optional<VarunaShape> shape(int depth);
  bool fits(const VarunaShape& shape, std::string& witness) const;
  StageCosts::Passes compute(const StageShape& stage) const;
  Seconds estimate(const VarunaShape& shape) const;
  ir::Plan plan(const VarunaShape& shape) const;

  const PlannerInput& input_;
  const VarunaSettings& settings_;
  StageCosts costs_;
  VarunaView view_;
  ir::ScheduleKind schedule_ = ir::ScheduleKind::one_f_one_b;
  ir::Recompute recompute_;
  int zero_;
  Ranking ranking_;
  SearchReport report_;
};

StageShape VarunaSearch::stage(const VarunaShape& shape, int first, int layers,
                               int position) const {
  StageShape stage;
  stage.first = first;
  stage.layers = layers;
  stage.samples = shape.micro_batch_size;
  stage.recompute = recompute_;
  stage.zero_stage = zero_;
  stage.replicas = shape.replicas;
  stage.in_flight =
      models::micro_batches_in_flight(schedule_, shape.depth, position, shape.micro_batches, 1);
  return stage;
}

bool VarunaSearch::fits(const VarunaShape& shape, std::string& witness) const {
  int first = 0;
  int position = 0;
  for (const int count : even_shares(costs_.layers(), shape.depth)) {
    const Bytes need = costs_.memory(stage(shape, first, count, position));
    if (need > view_.capacity) {
      witness = fmt::format(
          "{} stages with micro-batches of {}: stage {} needs {:.1f} GiB, the smallest GPU, {}, "
          "has {:.1f} GiB",
          shape.depth, shape.micro_batch_size, position, need / 1_GiB, view_.smallest,
          view_.capacity / 1_GiB);
      return false;
    }
    first += count;
    ++position;
  }
  return true;
}

/// Deviation: the public code rounds the number of micro-batches up, so that a step may take more
/// than the batch. Here micro-batches divide the batch, and pipelines take turns in having one
/// more.
std::optional<VarunaShape> VarunaSearch::shape(int depth) {
  const std::int64_t batch = input_.job.global_batch;
  const std::int64_t replicas =
      std::min<std::int64_t>(static_cast<std::int64_t>(input_.devices.size()) / depth, batch);
  std::string witness;
  std::vector<std::int64_t> sizes = divisors(batch);
  std::reverse(sizes.begin(), sizes.end());
  for (const std::int64_t size : sizes) {
    if (size > input_.job.allowed.max_micro_batch_size || batch / size < replicas) continue;
    if (settings_.micro_batch_size != 0 && size != settings_.micro_batch_size) continue;
    const VarunaShape shape{depth, static_cast<int>(replicas), static_cast<int>(size),
                            static_cast<int>((batch / size + replicas - 1) / replicas)};
    if (fits(shape, witness)) return shape;
  }
  if (witness.empty()) return std::nullopt;  // No size divides the batch.
  ++report_.rejected_by_memory;
  if (report_.constraints.empty()) report_.constraints.push_back({kDeviceMemory, 0, {}, ""});
  ++report_.constraints.front().rejected;
  report_.constraints.front().witness = witness;
  return std::nullopt;
}

/// On the mean GPU.
StageCosts::Passes VarunaSearch::compute(const StageShape& stage) const {
  StageCosts::Passes mean;
  for (std::size_t type = 0; type < view_.share.size(); ++type) {
    if (view_.share[type] == 0) continue;
    const StageCosts::Passes one = costs_.compute(static_cast<int>(type), stage);
    mean.forward += view_.share[type] * one.forward;
    mean.backward += view_.share[type] * one.backward;
  }
  return mean;
}

/// Simulated pipeline, then a ring all-reduce of the largest stage's gradients.
Seconds VarunaSearch::estimate(const VarunaShape& shape) const {
  VarunaPipeline pipeline;
  pipeline.recomputes = recompute_ != ir::Recompute::none;
  Bytes gradients;
  int first = 0;
  int position = 0;
  for (const int count : even_shares(costs_.layers(), shape.depth)) {
    StageShape one = stage(shape, first, count, position);
    const StageCosts::Passes with = compute(one);
    one.recompute = ir::Recompute::none;
    const StageCosts::Passes without = compute(one);
    pipeline.forward.push_back(with.forward);
    pipeline.backward.push_back(without.backward);
    pipeline.recompute.push_back(with.backward - without.backward);
    gradients = std::max(gradients, costs_.gradients(first, count));
    first += count;
    ++position;
    if (position == shape.depth) break;
    const models::Path& path = position % view_.gpus_per_node == 0 ? view_.between : view_.inside;
    pipeline.send.push_back(path.latency + static_cast<double>(shape.micro_batch_size) *
                                               costs_.activation(first) / path.bandwidth);
  }
  Seconds time = simulate_varuna(pipeline, shape.micro_batches);
  if (shape.replicas > 1) {
    const double replicas = shape.replicas;
    const models::Path& path =
        shape.replicas * shape.depth > view_.gpus_per_node ? view_.between : view_.inside;
    time += 2 * (replicas - 1) * (path.latency + gradients / replicas / path.bandwidth);
  }
  return time;
}

/// Pipelines take consecutive devices, so that neighboring stages share nodes.
ir::Plan VarunaSearch::plan(const VarunaShape& shape) const {
  ir::Plan plan;
  plan.schedule = schedule_;
  const std::int64_t all = input_.job.global_batch / shape.micro_batch_size;
  auto device = input_.devices.begin();
  for (int r = 0; r < shape.replicas; ++r) {
    ir::Pipeline pipeline;
    pipeline.micro_batch_size = shape.micro_batch_size;
    pipeline.micro_batches =
        static_cast<int>(all / shape.replicas + (r < all % shape.replicas ? 1 : 0));
    int first = 0;
    for (const int count : even_shares(costs_.layers(), shape.depth)) {
      pipeline.stages.push_back(stage_of_layers(
          input_.workload, first, count, tensor_groups({device++, 1}, 1, shape.micro_batch_size),
          recompute_, zero_));
      first += count;
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  return plan;
}

PlannerResult VarunaSearch::run() {
  const auto schedule = models::preferred_schedule(input_.job.allowed.schedules);
  if (!schedule) {
    return {models::Infeasible{"schedule", "the job allows no schedule without virtual stages"},
            report_};
  }
  schedule_ = *schedule;
  const int most = std::min(costs_.layers(), static_cast<int>(input_.devices.size()));
  for (int depth = 1; depth <= most; ++depth) {
    if (settings_.depths == VarunaDepths::divisors_public && costs_.layers() % depth != 0) continue;
    if (must_end(input_, report_.work)) {
      report_.complete = false;
      break;
    }
    const std::optional<VarunaShape> found = shape(depth);
    ++report_.work;
    if (!found) continue;
    ++report_.plans_examined;
    ranking_.offer(
        estimate(*found), [this, shape = *found] { return plan(shape); },
        [shape = *found] {
          return fmt::format("PP {} x DP {}, micro-batches of {}", shape.depth, shape.replicas,
                             shape.micro_batch_size);
        });
  }
  report_.notes.emplace_back(
      "all GPUs count as one mean GPU with the memory of the smallest; the plan runs 1F1B or what "
      "the job allows, Varuna simulates its own opportunistic schedule");
  models::Infeasible none{
      "micro-batch size",
      fmt::format("no allowed micro-batch divides the batch of {}", input_.job.global_batch)};
  if (!report_.constraints.empty()) {
    none = {kDeviceMemory, report_.constraints.front().witness};
  } else if (!report_.complete) {
    none = {"search", "ended before the first simulation"};
  }
  return ranking_.finish("varuna", settings_.evaluate_top, std::move(report_), std::move(none));
}

class Varuna final : public Planner {
 public:
  using Settings = VarunaSettings;
  explicit Varuna(VarunaSettings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override {
    if (input.devices.empty()) {
      return {models::Infeasible{"number of devices", "there are none"}, {}};
    }
    return VarunaSearch(input, settings_).run();
  }

 private:
  VarunaSettings settings_;
};

}  // namespace

extern const PlannerEntry kVaruna;

const PlannerEntry kVaruna = planner_entry<Varuna>(
    "varuna", "Varuna (Athlur et al., EuroSys 2022) and microsoft/varuna, auto_config.py",
    "pipeline depth; for each the largest micro-batch that fits and as many replicas as there are "
    "GPUs for",
    "tensor parallelism; differences between GPUs and between links (one mean GPU, one path inside "
    "and one between nodes); the optimizer step");

}  // namespace orrery::planners
