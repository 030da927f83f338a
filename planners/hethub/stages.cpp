#include "planners/hethub/stages.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>

#include "models/base/ids.h"
#include "models/cost/memory.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

using Groups = std::vector<std::vector<DeviceId>>;

/// One group for each kind of links along the ring of its members.
Groups distinct(const StageCosts& costs, const Groups& groups) {
  std::set<std::vector<double>> seen;
  Groups result;
  for (const std::vector<DeviceId>& members : groups) {
    std::vector<double> links;
    for (std::size_t i = 0; members.size() > 1 && i < members.size(); ++i) {
      const models::Path path = costs.path(members[i], members[(i + 1) % members.size()]);
      links.push_back(path.bandwidth.value);
      links.push_back(path.latency.value);
    }
    if (seen.insert(links).second) result.push_back(members);
  }
  return result;
}

}  // namespace

StageShape hethub_shape(int first, int layers, const HethubDegrees& degrees) {
  StageShape shape;
  shape.first = first;
  shape.layers = layers;
  shape.tensor_parallel = degrees.tensor;
  shape.samples = degrees.micro_batch_size;
  shape.recompute = degrees.recompute;
  shape.zero_stage = degrees.zero;
  shape.replicas = degrees.replicas;
  return shape;
}

std::vector<std::vector<std::vector<DeviceId>>> hethub_groups(const PlannerInput& input,
                                                              int tensor) {
  std::vector<std::vector<std::vector<DeviceId>>> result(input.cluster.gpu_types.size());
  std::map<std::pair<NodeId, int>, std::vector<DeviceId>> alike;
  for (const DeviceId id : input.devices) {
    const models::Device& device = input.cluster.device(id);
    std::vector<DeviceId>& open = alike[{device.node, device.gpu_type}];
    open.push_back(id);
    if (static_cast<int>(open.size()) < tensor) continue;
    result[device.gpu_type].push_back(std::move(open));
    open.clear();
  }
  return result;
}

HethubStages::HethubStages(const PlannerInput& input, const StageCosts& costs,
                           ir::ActivationTransfer transfer, int tensor, int replicas)
    : input_(input), costs_(costs), transfer_(transfer), tensor_(tensor) {
  const auto groups = hethub_groups(input, tensor);
  for (std::size_t type = 0; type < groups.size(); ++type) {
    const auto wide = static_cast<std::ptrdiff_t>(replicas);
    for (std::ptrdiff_t i = 0; i < std::ssize(groups[type]) / wide; ++i) {
      const auto begin = groups[type].begin() + i * wide;
      places_.push_back({static_cast<int>(type), {begin, begin + wide}});
    }
  }
  for (const HethubPlace& place : places_) distinct_.push_back(distinct(costs, place.groups));
}

std::vector<Seconds> hethub_reference(const StageCosts& costs, const Groups& groups,
                                      const HethubDegrees& degrees) {
  const int total = costs.layers();
  std::vector<Seconds> times(total + 1, Seconds{std::numeric_limits<double>::infinity()});
  times[0] = Seconds{};
  for (const std::vector<DeviceId>& group : distinct(costs, groups)) {
    for (int layers = 1; layers <= total; ++layers) {
      Seconds& least = times[layers];
      for (int first = 0; first + layers <= total; ++first) {
        least = std::min(least, costs.passes(group, hethub_shape(first, layers, degrees)).both());
      }
    }
  }
  return times;
}

StageCosts::Passes HethubStages::passes(int place, const StageShape& shape) const {
  StageCosts::Passes slowest;
  for (const std::vector<DeviceId>& group : distinct_[place]) {
    const StageCosts::Passes one = costs_.passes(group, shape);
    slowest = {std::max(slowest.forward, one.forward), std::max(slowest.backward, one.backward)};
  }
  return slowest;
}

/// One micro-batch of activations between the replicas, the slowest of them.
Seconds HethubStages::hop(int from, int to, int layer, int samples) const {
  const Bytes bytes = static_cast<double>(samples) * costs_.activation(layer);
  const auto [known, added] = hops_.try_emplace({from, to, bytes.value});
  if (!added) return known->second;
  const HethubPlace& source = places_[from];
  const HethubPlace& target = places_[to];
  for (std::size_t r = 0; r < source.groups.size(); ++r) {
    known->second = std::max(
        known->second, costs_.hop(source.groups[r], target.groups[r], layer, samples, transfer_));
  }
  return known->second;
}

/// Each member of a group with its counterparts in the other replicas, side by side.
Seconds HethubStages::all_reduce(int place, Bytes gradients) const {
  const auto [known, added] = all_reduces_.try_emplace({place, gradients.value});
  if (!added) return known->second;
  const HethubPlace& where = places_[place];
  for (std::size_t member = 0; member < as_size(tensor_); ++member) {
    std::vector<DeviceId> ring;
    for (const std::vector<DeviceId>& group : where.groups) ring.push_back(group[member]);
    known->second =
        std::max(known->second, costs_.all_reduce(ring, gradients / static_cast<double>(tensor_)));
  }
  return known->second;
}

std::vector<PredictedStage> HethubStages::predict(std::span<const HethubSlot> order,
                                                  const HethubDegrees& degrees) const {
  std::vector<PredictedStage> stages;
  int first = 0;
  for (std::size_t s = 0; s < order.size(); ++s) {
    const auto [place, layers] = order[s];
    const StageShape what = hethub_shape(first, layers, degrees);
    const StageCosts::Passes time = passes(place, what);
    PredictedStage stage{time.forward, time.backward, {}, {}, {}};
    if (degrees.replicas > 1) {
      // ZeRO-3 gathers the parameters once more.
      stage.update =
          (degrees.zero == 3 ? 1.5 : 1.0) * all_reduce(place, costs_.gradients(first, layers));
    }
    stage.update += costs_.optimizer(places_[place].gpu_type, what);
    first += layers;
    if (s + 1 < order.size()) {
      stage.forward_hop = hop(place, order[s + 1].place, first, degrees.micro_batch_size);
      stage.backward_hop = hop(order[s + 1].place, place, first, degrees.micro_batch_size);
    }
    stages.push_back(stage);
  }
  return stages;
}

bool HethubStages::fits(std::span<const HethubSlot> order, const HethubDegrees& degrees) const {
  int first = 0;
  for (std::size_t s = 0; s < order.size(); ++s) {
    StageShape what = hethub_shape(first, order[s].layers, degrees);
    what.in_flight = models::micro_batches_in_flight(ir::ScheduleKind::one_f_one_b,
                                                     static_cast<int>(order.size()),
                                                     static_cast<int>(s), degrees.micro_batches, 1);
    const HethubPlace& place = places_[order[s].place];
    if (costs_.capacity(place.gpu_type) < costs_.memory(what)) return false;
    first += order[s].layers;
  }
  return true;
}

ir::Plan HethubStages::build(std::span<const HethubSlot> order,
                             const HethubDegrees& degrees) const {
  ir::Plan plan;
  plan.communication.activation_transfer = transfer_;
  for (int r = 0; r < degrees.replicas; ++r) {
    ir::Pipeline chain;
    chain.micro_batches = degrees.micro_batches;
    chain.micro_batch_size = degrees.micro_batch_size;
    int first = 0;
    for (const HethubSlot& slot : order) {
      const HethubPlace& place = places_[slot.place];
      chain.stages.push_back(
          stage_of_layers(input_.workload, first, slot.layers,
                          tensor_groups(place.groups[r], degrees.tensor, degrees.micro_batch_size),
                          degrees.recompute, degrees.zero));
      first += slot.layers;
    }
    plan.pipelines.push_back(std::move(chain));
  }
  return plan;
}

}  // namespace orrery::planners
