#include "planners/galvatron/costs.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "models/base/ids.h"
#include "models/cost/collective.h"
#include "models/cost/memory.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

/// "fsdp_model_states memory is slightly larger": the public code adds this to every 1 / d.
constexpr double kShardingBias = 0.003;

}  // namespace

double galvatron_iteration(std::span<const GalvatronTime> stages, int micro_batches) {
  double longest = 0;
  double before = 0;
  double rest = 0;
  for (const GalvatronTime& stage : stages) {
    longest = std::max(longest, stage.compute);
    before += stage.compute;
    rest = std::max(rest, stage.total - before);
  }
  return longest * (micro_batches - 1 + static_cast<double>(stages.size())) + rest;
}

double overlapped(double compute, double communicate, double factor) {
  return std::max(compute, communicate) + (factor - 1) * std::min(compute, communicate);
}

GalvatronCosts::GalvatronCosts(const PlannerInput& input, const std::vector<DeviceId>& devices,
                               const GalvatronConstants& constants)
    : input_(input), devices_(devices), constants_(constants), costs_(input) {
  std::map<int, double> share;  // By GPU type.
  for (const DeviceId d : devices) {
    share[input.cluster.device(d).gpu_type] += 1 / static_cast<double>(devices.size());
  }
  StageShape shape;
  for (shape.first = 0; shape.first < costs_.layers(); ++shape.first) {
    Layer& layer = layers_.emplace_back();
    for (const auto& [type, weight] : share) {
      shape.recompute = ir::Recompute::none;
      const StageCosts::Passes plain = costs_.compute(type, shape);
      shape.recompute = ir::Recompute::selective;
      const StageCosts::Passes again = costs_.compute(type, shape);
      layer.forward += weight * plain.forward.value;
      layer.recompute += weight * (again.backward - plain.backward).value;
    }
    const ir::Segment blocks = segment_of_layers(input.workload, shape.first, 1);
    for (const BlockId b : ids_from_to(blocks.first_block, blocks.last_block)) {
      const models::Block& block = input.workload.block(b);
      layer.reduced += block.tensor_collectives * block.output_bytes.value;
      layer.parameters += static_cast<double>(models::parameters(block));
    }
  }
  budget_ = std::numeric_limits<double>::infinity();
  for (const auto& [type, weight] : share) {
    const models::GpuType& gpu = input.cluster.gpu_types[type];
    double room = costs_.capacity(type).value;
    const double profiled = (gpu.memory - models::context_memory(input.profile, gpu.name)).value;
    if (constants.context.value > 0 && profiled > 0) {
      room *= (gpu.memory - constants.context).value / profiled;
    }
    budget_ = std::min(budget_, room);
  }
}

double GalvatronCosts::tensor_link(int tensor) const {
  const auto [place, added] = tensor_links_.try_emplace(tensor, 0);
  for (std::size_t i = 0; added && i < devices_.size(); i += tensor) {
    for (int m = 0; m < tensor && tensor > 1; ++m) {
      place->second = std::max(
          place->second, link(devices_[i + as_size(m)], devices_[i + as_size((m + 1) % tensor)]));
    }
  }
  return place->second;
}

double GalvatronCosts::replica_link(int stages, int tensor) const {
  const auto [place, added] = replica_links_.try_emplace({stages, tensor}, 0);
  if (!added) return place->second;
  const int per_stage = static_cast<int>(devices_.size()) / stages;
  const int replicas = per_stage / tensor;
  for (int s = 0; s < stages; ++s) {
    for (int m = 0; m < tensor && replicas > 1; ++m) {
      for (int r = 0; r < replicas; ++r) {
        const DeviceId a = devices_[s * per_stage + r * tensor + m];
        const DeviceId b = devices_[s * per_stage + (r + 1) % replicas * tensor + m];
        place->second = std::max(place->second, link(a, b));
      }
    }
  }
  return place->second;
}

double GalvatronCosts::stage_link(int stages) const {
  const auto [place, added] = stage_links_.try_emplace(stages, 0);
  const std::size_t per_stage = devices_.size() / stages;
  for (std::size_t i = per_stage; added && i < devices_.size(); ++i) {
    place->second = std::max(place->second, link(devices_[i - per_stage], devices_[i]));
  }
  return place->second;
}

GalvatronTime GalvatronCosts::layer(int number, const GalvatronStrategy& strategy, int stages,
                                    int batch) const {
  const Layer& layer = layers_[number];
  const double tensor = strategy.tensor;
  const double replicas = strategy.replicas;
  const double samples = batch / replicas;
  const double forward = layer.forward * samples / tensor;
  double backward = 2 * forward;
  double reduces = 2;  // A forward and a backward pass of all-reduces.
  if (strategy.recompute == ir::Recompute::full) {
    backward += forward;
    reduces = 3;
  } else if (strategy.recompute == ir::Recompute::selective) {
    backward += layer.recompute * samples / tensor;
  }
  double time =
      reduces * 2 * (tensor - 1) / tensor * samples * layer.reduced * tensor_link(strategy.tensor);
  const double part =
      (replicas - 1) / replicas * layer.parameters / tensor * replica_link(stages, strategy.tensor);
  if (strategy.zero == 3) time += part * input_.job.state_bytes.weight;
  if (stages > 1) {
    time += 2.0 * stages * samples * activation(number) / static_cast<double>(layers_.size()) *
            stage_link(stages);
  }
  const double reduction = 2 * part * input_.job.state_bytes.gradient;
  // With two replicas and tensor parallelism only half of the backward pass hides the reduction.
  const double overlapping =
      strategy.tensor > 1 && strategy.replicas == 2 ? backward / 2 : backward;
  return {forward + backward + time, forward + (backward - overlapping) +
                                         overlapped(overlapping, reduction, constants_.overlap) +
                                         time};
}

ir::Segment GalvatronCosts::segment(int layer, const GalvatronStrategy& strategy) const {
  ir::Segment segment = segment_of_layers(input_.workload, layer, 1);
  segment.recompute = strategy.recompute;
  return segment;
}

ir::Group GalvatronCosts::group(const GalvatronStrategy& strategy, int batch) const {
  ir::Group group;
  group.tensor_parallel = strategy.tensor;
  group.samples = batch / strategy.replicas;
  group.sequence = megatron_sequence(input_.job, strategy.tensor);
  return group;
}

double GalvatronCosts::memory(int layer, const GalvatronStrategy& strategy, int batch,
                              int in_flight) const {
  const models::SegmentMemory held = models::segment_memory(
      segment(layer, strategy), group(strategy, batch), 1, input_.workload, input_.job);
  const double parts[] = {held.optimizer_states.value, held.gradients.value, held.parameters.value};
  double states = 0;
  for (int stage = 1; stage <= 3; ++stage) {
    const bool sharded = strategy.replicas > 1 && strategy.zero >= stage;
    states += parts[stage - 1] * (sharded ? 1.0 / strategy.replicas + kShardingBias : 1);
  }
  return states + in_flight * held.activations_per_micro_batch.value;
}

double GalvatronCosts::reserve(int layer, const GalvatronStrategy& strategy, int batch) const {
  ir::Segment blocks = segment(layer, strategy);
  blocks.zero.stage = strategy.zero;
  const models::SegmentMemory held = models::segment_memory(
      blocks, group(strategy, batch), strategy.replicas, input_.workload, input_.job);
  return (held.recomputed + held.logits + held.communication).value;
}

}  // namespace orrery::planners
