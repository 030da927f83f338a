#include "planners/whale/annotation.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "models/cost/device_share.h"
#include "models/cost/memory.h"
#include "models/ir/names.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {

WhaleAnnotations::WhaleAnnotations(const PlannerInput& input, const WhaleSettings& settings)
    : input_(input), settings_(settings), layers_(count_layers(input.workload)), costs_(input) {}

std::string in_words(const WhaleAnnotation& a) {
  std::string text = fmt::format("TP {} x PP {} x DP {}, micro-batch {} over the replicas",
                                 a.tensor, a.stages, a.replicas, a.batch);
  if (a.recompute != ir::Recompute::none) {
    text += fmt::format(", {} recompute", ir::name_of(a.recompute));
  }
  if (a.zero > 0) text += fmt::format(", ZeRO-{}", a.zero);
  return fmt::format("{}, {}", text, ir::name_of(a.schedule));
}

const WhaleAnnotations::Groups& WhaleAnnotations::groups(int tensor) {
  const auto [known, added] = groups_.try_emplace(tensor);
  Groups& result = known->second;
  if (!added) return result;
  std::map<std::pair<NodeId, int>, std::vector<DeviceId>> alike;
  for (const DeviceId id : input_.devices) {
    const models::Device& device = input_.cluster.device(id);
    std::vector<DeviceId>& open = alike[{device.node, device.gpu_type}];
    open.push_back(id);
    if (static_cast<int>(open.size()) < tensor) continue;
    result.push_back(std::move(open));
    open.clear();
  }
  if (settings_.order == WhaleOrder::memory) {
    std::stable_sort(result.begin(), result.end(), [&](const auto& a, const auto& b) {
      return input_.cluster.gpu(a.front()).memory > input_.cluster.gpu(b.front()).memory;
    });
  }
  return result;
}

int WhaleAnnotations::type_of(const WhaleAnnotation& a, int stage, int replica) {
  const std::size_t index = stage * a.replicas + replica;
  return input_.cluster.device(groups(a.tensor)[index].front()).gpu_type;
}

double WhaleAnnotations::compute_of(int gpu_type) const {
  if (settings_.compute == WhaleCompute::peak) {
    return models::peak_flops(input_.cluster.gpu_types[gpu_type], input_.job.dtype).value;
  }
  StageShape all;
  all.layers = layers_;
  return 1 / costs_.compute(gpu_type, all).both().value;
}

std::vector<double> WhaleAnnotations::compute_of_replicas(const WhaleAnnotation& a, int stage) {
  std::vector<double> result;
  for (int r = 0; r < a.replicas; ++r) {
    result.push_back(compute_of(type_of(a, stage, r)));
  }
  return result;
}

/// Above 1 also where the job allows fewer samples at once.
double WhaleAnnotations::memory_use(int gpu_type, const WhaleAnnotation& a, int stage, int first,
                                    int layers, int samples) const {
  StageShape shape;
  shape.first = first;
  shape.layers = layers;
  shape.tensor_parallel = a.tensor;
  shape.samples = samples;
  shape.recompute = a.recompute;
  shape.zero_stage = a.zero;
  shape.replicas = a.replicas;
  shape.in_flight = models::micro_batches_in_flight(
      a.schedule, a.stages, stage, static_cast<int>(input_.job.global_batch / a.batch), 1);
  const Bytes have = costs_.capacity(gpu_type);
  const double use = have <= Bytes{} ? 2 : costs_.memory(shape) / have;
  const double cap = static_cast<double>(samples) / input_.job.allowed.max_micro_batch_size;
  return std::max(use, cap);
}

/// Intra-TaskGraph: samples of the replicas of a stage.
WhaleLoads WhaleAnnotations::replicas(const WhaleAnnotation& a, int stage, int first, int layers) {
  const auto memory = [&](std::size_t r, int samples) {
    return memory_use(type_of(a, stage, static_cast<int>(r)), a, stage, first, layers, samples);
  };
  if (settings_.batches == WhaleSharing::by_compute) {
    return whale_balance(a.batch, compute_of_replicas(a, stage), memory);
  }
  WhaleLoads even{even_shares(a.batch, a.replicas), true};
  for (std::size_t r = 0; r < even.loads.size(); ++r) {
    even.fits = even.fits && memory(r, even.loads[r]) <= 1;
  }
  return even;
}

/// Memory use of the fullest replica after the balance inside the stage. Inner stages are taken as
/// if they began at the second layer.
double WhaleAnnotations::stage_use(const WhaleAnnotation& a, int stage, int layers) {
  int first = stage == 0 ? 0 : std::min(1, layers_ - layers);
  if (stage == a.stages - 1) first = layers_ - layers;
  const WhaleLoads inside = replicas(a, stage, first, layers);
  double use = 0;
  for (int r = 0; r < a.replicas; ++r) {
    use = std::max(use, memory_use(type_of(a, stage, r), a, stage, first, layers, inside.loads[r]));
  }
  return use;
}

/// Inter-TaskGraph, then intra-TaskGraph. Deviation: how the two combine is not known; here the
/// memory of a stage is counted with its replicas balanced.
WhaleShares WhaleAnnotations::balance(const WhaleAnnotation& a) {
  WhaleShares result;
  if (settings_.layers == WhaleSharing::by_compute) {
    std::vector<double> compute;
    for (int s = 0; s < a.stages; ++s) {
      const std::vector<double> inside = compute_of_replicas(a, s);
      compute.push_back(std::accumulate(inside.begin(), inside.end(), 0.0));
    }
    result.layers = whale_balance(layers_, compute, [&](std::size_t s, int layers) {
                      return stage_use(a, static_cast<int>(s), layers);
                    }).loads;
  } else {
    result.layers = even_shares(layers_, a.stages);
  }
  int first = 0;
  for (int s = 0; s < a.stages; ++s) {
    const int layers = result.layers[s];
    WhaleLoads inside = replicas(a, s, first, layers);
    result.fits = result.fits && inside.fits;
    result.samples.push_back(std::move(inside.loads));
    first += layers;
  }
  return result;
}

ir::Plan WhaleAnnotations::build(const WhaleAnnotation& a, const WhaleShares& loads) {
  ir::Plan plan;
  plan.schedule = a.schedule;
  plan.communication.activation_transfer = settings_.transfer;
  ir::Pipeline chain;
  chain.micro_batch_size = a.batch;
  chain.micro_batches = static_cast<int>(input_.job.global_batch / a.batch);
  int first = 0;
  for (int s = 0; s < a.stages; ++s) {
    const std::size_t stage = s;
    std::vector<ir::Group> own;
    for (int r = 0; r < a.replicas; ++r) {
      const auto& devices = groups(a.tensor)[s * a.replicas + r];
      own.push_back(tensor_groups(devices, a.tensor, loads.samples[stage][r]).front());
    }
    chain.stages.push_back(stage_of_layers(input_.workload, first, loads.layers[stage],
                                           std::move(own), a.recompute, a.zero));
    first += loads.layers[stage];
  }
  plan.pipelines.push_back(std::move(chain));
  return plan;
}

}  // namespace orrery::planners
