#include "planners/hexiscale/costs.h"

#include <algorithm>
#include <cmath>

#include "models/base/ids.h"
#include "models/cost/device_share.h"
#include "models/cost/memory.h"
#include "models/schedule/schedule.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

models::HexiscaleOptions factors(const HexiscaleSettings& settings, const models::Job& job) {
  models::HexiscaleOptions options = settings.cost_factors == CostFactors::paper
                                         ? models::HexiscaleOptions::paper()
                                         : models::HexiscaleOptions::public_code();
  options.gradient_synchronizations = job.gradient_synchronizations;
  return options;
}

}  // namespace

HexiscaleCosts::HexiscaleCosts(const PlannerInput& input, const HexiscaleSettings& settings)
    : input_(input),
      settings_(settings),
      dense_(input.cluster.devices.size(), -1),
      model_(
          input.cluster, input.workload, [this](DeviceId a, DeviceId b) { return path(a, b); },
          factors(settings, input.job)),
      layers_(count_layers(input.workload)),
      recompute_(settings.recompute == RecomputeRule::strongest ? strongest_recompute(input.job)
                                                                : weakest_recompute(input.job)),
      zero_(smallest_zero_stage(input.job)) {
  const std::size_t n = input.devices.size();
  std::map<NodeId, int> in_node;
  int tensor_limit = 1;
  for (std::size_t i = 0; i < n; ++i) {
    const DeviceId device = input.devices[i];
    dense_[device] = static_cast<int>(i);
    tensor_limit = std::max(tensor_limit, ++in_node[input.cluster.device(device).node]);
  }
  paths_.resize(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      paths_[i * n + j] = input.topology.path(input.devices[i], input.devices[j]);
    }
  }
  degrees_ = planners::tensor_degrees(input.workload, input.job, tensor_limit);
  schedule_ = models::preferred_schedule(input.job.allowed.schedules).value_or(schedule_);
}

models::Path HexiscaleCosts::path(DeviceId a, DeviceId b) const {
  const auto row = as_size(dense_[a]) * input_.devices.size();
  return paths_[row + as_size(dense_[b])];
}

Seconds HexiscaleCosts::per_layer(std::span<const DeviceId> group) const {
  return model_.stage(group, 1, settings_.micro_batch_size, recompute_ == ir::Recompute::full);
}

Seconds HexiscaleCosts::hop(std::span<const DeviceId> from, std::span<const DeviceId> to) const {
  return model_.hop(from, to, settings_.micro_batch_size);
}

double HexiscaleCosts::power(DeviceId device) const {
  return models::peak_flops(input_.cluster.gpu(device), input_.job.dtype).value;
}

HexiscaleCosts::Part HexiscaleCosts::part(BlockId first, BlockId last, int tensor,
                                          int pipelines) const {
  if (last < first) return {};
  ir::Segment segment;
  segment.first_block = first;
  segment.last_block = last;
  segment.recompute = recompute_;
  segment.zero.stage = zero_;
  ir::Group group;
  group.tensor_parallel = tensor;
  group.samples = settings_.micro_batch_size;
  const models::SegmentMemory memory =
      models::segment_memory(segment, group, pipelines, input_.workload, input_.job);
  return {memory.states(), memory.activations_per_micro_batch, memory.recomputed, memory.logits,
          memory.communication};
}

const HexiscaleCosts::Parts& HexiscaleCosts::parts(int tensor, int pipelines) const {
  const auto [place, added] = parts_.try_emplace({tensor, zero_ == 0 ? 1 : pipelines});
  if (!added) return place->second;
  const models::Workload& workload = input_.workload;
  Parts& result = place->second;
  for (const BlockId b : ids_from_to(workload.first_layer(), workload.last_layer())) {
    const Part one = part(b, b, tensor, pipelines);
    Part& layer = result.layer;
    layer = {std::max(layer.states, one.states), std::max(layer.activations, one.activations),
             std::max(layer.recomputed, one.recomputed), std::max(layer.logits, one.logits),
             std::max(layer.staging, one.staging)};
  }
  result.embedding = part(BlockId{0}, BlockId{workload.first_layer().value - 1}, tensor, pipelines);
  result.head = part(BlockId{workload.last_layer().value + 1}, BlockId{workload.size() - 1}, tensor,
                     pipelines);
  return result;
}

int HexiscaleCosts::max_layers(std::span<const DeviceId> group, const Place& place) const {
  const int tensor = static_cast<int>(group.size());
  int most = layers_;
  for (const DeviceId device : group) {
    const models::GpuType& gpu = input_.cluster.gpu(device);
    if (settings_.memory == MemoryRule::equation_11) {
      const Bytes layer = model_.layer_memory(tensor, settings_.micro_batch_size);
      most = std::min(most, static_cast<int>(std::floor(gpu.memory / layer)));
      continue;
    }
    const Parts& p = parts(tensor, place.pipelines);
    Part fixed{{}, {}, p.layer.recomputed, p.layer.logits, p.layer.staging};
    const auto add = [&](const Part& end) {
      fixed.states += end.states;
      fixed.activations += end.activations;
      fixed.recomputed = std::max(fixed.recomputed, end.recomputed);
      fixed.logits = std::max(fixed.logits, end.logits);
      fixed.staging = std::max(fixed.staging, end.staging);
    };
    if (place.first) add(p.embedding);
    if (place.last) add(p.head);
    const Bytes free = models::largest_peak(input_.profile, gpu) - fixed.states -
                       place.in_flight * fixed.activations - fixed.recomputed - fixed.logits -
                       fixed.staging;
    const Bytes each = p.layer.states + place.in_flight * p.layer.activations;
    most = std::min(
        most,
        static_cast<int>(std::floor(std::clamp(free / each, 0.0, static_cast<double>(layers_)))));
  }
  return std::max(most, 0);
}

int HexiscaleCosts::most_pipelines() const {
  const models::StateBytes& bytes = input_.job.state_bytes;
  const double elements = static_cast<double>(models::parameters(input_.workload));
  double shared = 0;  // Bytes per parameter that ZeRO keeps once.
  const ir::Zero zero{zero_};
  if (zero.shards_optimizer()) shared += bytes.master + bytes.moments;
  if (zero.shards_gradients()) shared += bytes.gradient;
  if (zero.shards_parameters()) shared += bytes.weight;
  double room = -shared * elements;
  for (const DeviceId device : input_.devices) {
    const models::GpuType& gpu = input_.cluster.gpu(device);
    room += (gpu.memory - models::context_memory(input_.profile, gpu.name)).value;
  }
  const auto devices = static_cast<double>(input_.devices.size());
  const double each = (bytes.total() - shared) * elements;
  if (room < 0) return 0;
  return static_cast<int>(each > 0 ? std::min(devices, std::floor(room / each)) : devices);
}

}  // namespace orrery::planners
