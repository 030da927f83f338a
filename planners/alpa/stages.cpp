#include "planners/alpa/stages.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "models/schedule/schedule.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {

AlpaStages::AlpaStages(const PlannerInput& input, const StageCosts& costs, const UniformView& view,
                       const AlpaSettings& settings, AlpaCase what)
    : UniformStages(input, costs, view), settings_(settings), case_(what) {
  const int inside = view.gpus_per_host();
  const int hosts = static_cast<int>(view.hosts().size());
  for (const int devices : powers_of_two(inside)) add_submesh(devices);
  for (int count = 2; count <= hosts; ++count) {
    const bool small = settings.submeshes == AlpaSubmeshes::small_power_of_two;
    if (settings.submeshes != AlpaSubmeshes::all && !is_power_of_two(count)) continue;
    if (small && count > 4) continue;
    add_submesh(count * inside);
  }
}

void AlpaStages::add_submesh(int devices) {
  const int inside = view_.gpus_per_host();
  const std::vector<int>& allowed = input_.job.allowed.zero_stages;
  const std::set<int> zeros(allowed.begin(), allowed.end());
  std::vector<AlpaShape> shapes;
  for (const int tensor : tensor_degrees(input_.workload, input_.job, std::min(inside, devices))) {
    if (inside % tensor != 0) continue;
    const int data = devices / tensor;
    const bool physical = tensor == std::min(inside, devices);
    if (settings_.logical == AlpaLogical::same_as_physical && !physical) continue;
    if (settings_.logical == AlpaLogical::data_parallel_only && tensor > 1) continue;
    if (case_.micro_batch_size % data != 0) continue;
    if (case_.micro_batch_size / data > input_.job.allowed.max_micro_batch_size) continue;
    for (const int zero : zeros) shapes.push_back({data, tensor, zero});
  }
  choices_.push_back({devices, 1});
  shapes_.push_back(std::move(shapes));
}

bool AlpaStages::any() const {
  return std::any_of(shapes_.begin(), shapes_.end(), [](const auto& own) { return !own.empty(); });
}

StageShape AlpaStages::stage_shape(int first, int layers, const AlpaShape& shape) const {
  StageShape stage;
  stage.first = first;
  stage.layers = layers;
  stage.tensor_parallel = shape.tensor;
  stage.sequence = megatron_sequence(input_.job, shape.tensor);
  stage.samples = case_.micro_batch_size / shape.data;
  stage.recompute = case_.recompute;
  stage.zero_stage = shape.zero;
  stage.replicas = shape.data;
  return stage;
}

/// Latency of one micro-batch, and the share of what is done once per step.
double AlpaStages::cost(const StageShape& stage, const AlpaShape& shape) const {
  const bool one_host = shape.data * shape.tensor <= view_.gpus_per_host();
  const models::Path& path = one_host ? view_.inside() : view_.between();
  const double elements = view_.parameters(stage.first, stage.layers) / shape.tensor;
  const models::StateBytes& bytes = input_.job.state_bytes;
  const Seconds gradients =
      0.5 * view_.all_reduce(shape.data, Bytes{elements * bytes.gradient}, path);
  const Seconds weights = 0.5 * view_.all_reduce(shape.data, Bytes{elements * bytes.weight}, path);
  Seconds each = view_.compute(stage) + view_.tensor_parallel(stage);
  Seconds once = view_.optimizer(stage) + gradients;
  if (shape.zero == 0) once += gradients;
  if (shape.zero == 1 || shape.zero == 2) once += weights;
  if (shape.zero == 3) each += 2.0 * weights;
  return (each + once / static_cast<double>(case_.micro_batches)).value;
}

/// 0: the stage does not fit even as the last one.
int AlpaStages::most_stages(StageShape stage) const {
  const int all = static_cast<int>(std::min<std::int64_t>(case_.micro_batches, costs_.layers()));
  const auto fits = [&](int in_flight) {
    stage.in_flight = in_flight;
    return costs_.memory(stage) <= view_.capacity();
  };
  const int whole = static_cast<int>(case_.micro_batches);
  if (models::schedule_entry(case_.schedule).holds_whole_batch())
    return fits(whole) ? costs_.layers() : 0;
  if (fits(all)) return costs_.layers();
  int good = 0;
  for (int bad = all; bad - good > 1;) {
    const int middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

std::vector<StageStep> AlpaStages::price(int first, int layers, int submesh) {
  std::vector<StageStep> steps;
  const std::vector<AlpaShape>& shapes = shapes_[submesh];
  for (std::size_t v = 0; v < shapes.size(); ++v) {
    const StageShape stage = stage_shape(first, layers, shapes[v]);
    if (layers == 1) note_need(first, costs_.memory(stage));
    const int most = most_stages(stage);
    if (most == 0) {
      ++rejected_;
      continue;
    }
    const double time = cost(stage, shapes[v]);
    if (std::isfinite(time)) steps.push_back({most, time, static_cast<int>(v)});
  }
  return steps;
}

}  // namespace orrery::planners
