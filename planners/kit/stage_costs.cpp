#include "planners/kit/stage_costs.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "models/cost/collective.h"
#include "models/cost/device_share.h"
#include "models/cost/memory.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

using ir::CollectiveKind;
using models::CollectiveAlgorithm;

ir::Group group_of(const StageShape& shape) {
  ir::Group group;
  group.tensor_parallel = shape.tensor_parallel;
  group.sequence = shape.sequence;
  group.sequence_degree = shape.sequence_degree;
  group.samples = shape.samples;
  return group;
}

}  // namespace

StageCosts::StageCosts(const PlannerInput& input)
    : input_(input),
      path_([this](DeviceId a, DeviceId b) { return path(a, b); }),
      pricer_(input.cluster, input.workload, input.job, input.profile),
      layers_(count_layers(input.workload)) {
  for (const models::GpuType& gpu : input.cluster.gpu_types) {
    capacity_.push_back(models::largest_peak(input.profile, gpu));
  }
}

models::Path StageCosts::path(DeviceId a, DeviceId b) const {
  const auto pair = static_cast<std::uint64_t>(a.value) << 32 | static_cast<std::uint32_t>(b.value);
  const auto [place, added] = paths_.try_emplace(pair);
  if (added) place->second = input_.topology.path(a, b);
  return place->second;
}

ir::Segment StageCosts::segment(const StageShape& shape) const {
  ir::Segment segment = segment_of_layers(input_.workload, shape.first, shape.layers);
  segment.recompute = shape.recompute;
  segment.zero.stage = shape.zero_stage;
  segment.expert_parallel = shape.expert_parallel;
  return segment;
}

/// Times of blocks 0 ... b - 1 at position b.
const std::vector<StageCosts::Passes>& StageCosts::prefix(int gpu_type,
                                                          const StageShape& shape) const {
  const ComputeKey key{gpu_type,
                       shape.tensor_parallel,
                       shape.sequence_degree,
                       shape.samples,
                       static_cast<int>(shape.recompute),
                       shape.expert_parallel,
                       shape.experts,
                       shape.expert_samples};
  std::vector<Passes>& sums = prefixes_[key];
  if (!sums.empty()) return sums;
  models::BlockQuery query;
  query.gpu_type = gpu_type;
  query.tensor_parallel = shape.tensor_parallel;
  query.sequence_degree = shape.sequence_degree;
  query.samples = shape.samples;
  query.recompute = shape.recompute;
  query.expert_parallel = shape.expert_parallel;
  query.experts = shape.experts;
  query.expert_samples = shape.expert_samples;
  sums.emplace_back();
  for (int b = 0; b < input_.workload.size(); ++b) {
    query.block = BlockId{b};
    query.pass = ir::Pass::forward;
    const models::BlockParts forward = pricer_.block_parts(query);
    query.pass = ir::Pass::backward;
    const models::BlockParts backward = pricer_.block_parts(query);
    const Passes& before = sums.back();
    sums.push_back({before.forward + forward.all, before.backward + backward.all,
                    before.experts_forward + forward.experts,
                    before.experts_backward + backward.experts});
  }
  return sums;
}

StageCosts::Passes StageCosts::compute(int gpu_type, const StageShape& shape) const {
  const ir::Segment blocks = segment(shape);
  const std::vector<Passes>& sums = prefix(gpu_type, shape);
  const Passes& before = sums[blocks.first_block.index()];
  const Passes& after = sums[blocks.last_block.index() + 1];
  return {after.forward - before.forward, after.backward - before.backward,
          after.experts_forward - before.experts_forward,
          after.experts_backward - before.experts_backward};
}

StageCosts::Passes StageCosts::tensor_parallel(std::span<const DeviceId> group,
                                               const StageShape& shape) const {
  Passes result;
  if (shape.tensor_parallel == 1) return result;
  const auto members = group.first(shape.tensor_parallel);
  const ir::Segment blocks = segment(shape);
  Bytes last;
  Seconds time;
  for (const BlockId b : ids_from_to(blocks.first_block, blocks.last_block)) {
    const models::Block& block = input_.workload.block(b);
    const Bytes bytes =
        static_cast<double>(shape.samples) / shape.sequence_degree * block.output_bytes;
    if (bytes != last) {
      time = models::collective_time(CollectiveKind::all_reduce, CollectiveAlgorithm::ring, members,
                                     bytes, path_);
      last = bytes;
    }
    const bool again = shape.recompute == ir::Recompute::full && models::is_recomputed(block.kind);
    result.forward += block.tensor_collectives * time;
    result.backward += block.tensor_collectives * (again ? 2 : 1) * time;
  }
  return result;
}

StageCosts::Passes StageCosts::passes(std::span<const DeviceId> group,
                                      const StageShape& shape) const {
  std::set<int> types;
  for (const DeviceId device : group) types.insert(input_.cluster.device(device).gpu_type);
  Passes slowest;
  for (const int type : types) {
    const Passes one = compute(type, shape);
    slowest = {std::max(slowest.forward, one.forward), std::max(slowest.backward, one.backward),
               std::max(slowest.experts_forward, one.experts_forward),
               std::max(slowest.experts_backward, one.experts_backward)};
  }
  const Passes together = tensor_parallel(group, shape);
  slowest.forward += together.forward;
  slowest.backward += together.backward;
  return slowest;
}

Bytes StageCosts::activation(int layer) const {
  return input_.workload.block(BlockId{input_.workload.first_layer().value + layer}).input_bytes;
}

Seconds StageCosts::hop(std::span<const DeviceId> from, std::span<const DeviceId> to, int layer,
                        int samples, ir::ActivationTransfer transfer) const {
  const Bytes bytes = static_cast<double>(samples) * activation(layer);
  const bool sliced = transfer == ir::ActivationTransfer::sliced;
  const double parts = sliced ? static_cast<double>(to.size()) : 1;
  return models::point_to_point_time(from.front(), to.front(), bytes / parts, path_) +
         models::collective_time(sliced ? CollectiveKind::all_gather : CollectiveKind::broadcast,
                                 CollectiveAlgorithm::ring, to, bytes, path_);
}

Bytes StageCosts::gradients(int first, int layers) const {
  const ir::Segment blocks = segment_of_layers(input_.workload, first, layers);
  return Bytes{static_cast<double>(
                   models::parameters(input_.workload, blocks.first_block, blocks.last_block)) *
               input_.job.state_bytes.gradient};
}

double StageCosts::expert_parameters(int first, int layers) const {
  const ir::Segment blocks = segment_of_layers(input_.workload, first, layers);
  double sum = 0;
  for (const BlockId b : ids_from_to(blocks.first_block, blocks.last_block)) {
    for (const models::Parameter& parameter : input_.workload.block(b).parameters) {
      if (parameter.expert) sum += static_cast<double>(parameter.elements);
    }
  }
  return sum;
}

Seconds StageCosts::all_reduce(std::span<const DeviceId> devices, Bytes bytes) const {
  const auto node_of = [&](DeviceId device) { return input_.cluster.device(device).node; };
  return models::collective_time(CollectiveKind::all_reduce, CollectiveAlgorithm::ring,
                                 models::ring_order(devices, node_of), bytes, path_);
}

Seconds StageCosts::optimizer(int gpu_type, const StageShape& shape) const {
  const ir::Segment blocks = segment(shape);
  const double shards =
      shape.zero_stage > 0 ? static_cast<double>(shape.replicas) / shape.state_weight : 1;
  const auto all = static_cast<double>(
      models::parameters(input_.workload, blocks.first_block, blocks.last_block));
  if (shape.expert_parallel == 1) {
    return pricer_.optimizer(gpu_type, all / shape.tensor_parallel / shards);
  }
  const double experts = expert_parameters(shape.first, shape.layers);
  const models::ExpertShare share{shape.expert_parallel, shape.experts, shape.expert_samples};
  const double parts = share.parts(input_.workload.shape.experts).parts;
  const double own = (all - experts) / shards +
                     experts / parts / std::max(1.0, std::floor(shards / shape.expert_parallel));
  return pricer_.optimizer(gpu_type, own / shape.tensor_parallel);
}

Bytes StageCosts::memory(const StageShape& shape) const {
  const MemoryKey key{shape.first,
                      shape.layers,
                      shape.tensor_parallel,
                      static_cast<int>(shape.sequence),
                      shape.sequence_degree,
                      shape.samples,
                      static_cast<int>(shape.recompute),
                      shape.zero_stage,
                      shape.zero_stage > 0 ? shape.replicas : 1,
                      shape.expert_parallel};
  const auto [place, added] = memory_.try_emplace(key);
  if (added) {
    const models::SegmentMemory held = models::segment_memory(
        segment(shape), group_of(shape), shape.replicas, input_.workload, input_.job);
    place->second = {held.fixed(), held.activations_per_micro_batch};
  }
  return place->second.fixed + shape.in_flight * place->second.per_in_flight;
}

bool StageCosts::fits(std::span<const DeviceId> group, const StageShape& shape) const {
  const Bytes need = memory(shape);
  return std::all_of(group.begin(), group.end(), [&](DeviceId device) {
    return need <= capacity(input_.cluster.device(device).gpu_type);
  });
}

}  // namespace orrery::planners
