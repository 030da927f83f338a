#include "models/cost/hexiscale_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "models/base/check.h"
#include "models/cost/device_share.h"
#include "models/schedule/closed_form.h"
#include "models/schedule/rounds.h"

namespace orrery::models {
namespace {

using Group = std::span<const DeviceId>;

/// The worst member's sum over all other members.
template <class Wire>
Seconds worst_sum(Group group, const Wire& wire) {
  Seconds worst;
  for (const DeviceId from : group) {
    Seconds sum;
    for (const DeviceId to : group) {
      if (to != from) sum += wire(from, to);
    }
    worst = std::max(worst, sum);
  }
  return worst;
}

bool is_layer(const Workload& workload, BlockId block) {
  return workload.first_layer() <= block && block <= workload.last_layer();
}

int count_layers(const Workload& workload, const ir::Segment& segment) {
  int layers = 0;
  for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
    if (is_layer(workload, b)) ++layers;
  }
  return layers;
}

/// Groups with a replica of the block, pipeline by pipeline.
std::vector<Group> replica_groups(const ir::Plan& plan, BlockId block) {
  std::vector<Group> groups;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        if (block < segment.first_block || segment.last_block < block) continue;
        for (const ir::Group& group : segment.groups) groups.push_back(group.devices);
      }
    }
  }
  return groups;
}

bool uses_zero3(const ir::Plan& plan) {
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        if (segment.zero.shards_parameters()) return true;
      }
    }
  }
  return false;
}

}  // namespace

HexiscaleOptions HexiscaleOptions::paper() { return {}; }

HexiscaleOptions HexiscaleOptions::public_code() {
  HexiscaleOptions options;
  options.latency = false;
  options.vocabulary_term = true;
  options.lock_step = true;
  options.sum_data_parallel = true;
  options.pipeline_factor = 1.8;
  options.data_parallel_factor = 1.1;
  options.zero3_factor = 1.5;
  options.flops_per_tera = 0x1p40;
  options.bytes_per_giga = 0x1p30;
  return options;
}

HexiscaleModel::HexiscaleModel(const Cluster& cluster, const Workload& workload, PathFunction path,
                               HexiscaleOptions options)
    : cluster_(cluster), workload_(workload), path_(std::move(path)), options_(options) {}

Bytes HexiscaleModel::activation(int samples) const {
  return static_cast<double>(samples) * static_cast<double>(workload_.sequence_length) *
         workload_.shape.hidden * ir::size_of(workload_.dtype);
}

Seconds HexiscaleModel::wire(DeviceId a, DeviceId b, Bytes bytes) const {
  const Path path = path_(a, b);
  const BytesPerSecond bandwidth = options_.bytes_per_giga / 1e9 * path.bandwidth;
  return (options_.latency ? path.latency : Seconds{}) + bytes / bandwidth;
}

Seconds HexiscaleModel::tensor_parallel_layer(Group group, int samples, bool recompute) const {
  const Bytes part = activation(samples) / static_cast<double>(group.size());
  return (recompute ? 12 : 8) *
         worst_sum(group, [&](DeviceId from, DeviceId to) { return wire(from, to, part); });
}

Seconds HexiscaleModel::data_parallel_layer(Group replicas, int parts) const {
  const double hidden = workload_.shape.hidden;
  const double shares = static_cast<double>(parts) * static_cast<double>(replicas.size());
  const Bytes part = 12 * hidden * hidden / shares * ir::size_of(workload_.dtype);
  return 2 * worst_sum(replicas, [&](DeviceId from, DeviceId to) { return wire(from, to, part); });
}

Seconds HexiscaleModel::hop(Group from, Group to, int samples) const {
  const Bytes whole = activation(samples);
  const Bytes part = whole / static_cast<double>(to.size());
  Seconds best{HUGE_VAL};
  std::vector<Seconds> passed_on;
  for (const DeviceId receiver : to) {
    passed_on.clear();
    for (const DeviceId other : to) {
      if (other != receiver) passed_on.push_back(wire(receiver, other, part));
    }
    for (const DeviceId sender : from) {
      Seconds time = wire(sender, receiver, whole);
      for (const Seconds each : passed_on) time += each;
      best = std::min(best, time);
    }
  }
  return 2 * best;
}

Seconds HexiscaleModel::compute_layer(Group group, int samples, bool recompute) const {
  const double hidden = workload_.shape.hidden;
  const double tokens = static_cast<double>(workload_.sequence_length);
  double terms = 1 + tokens / (6 * hidden);
  if (options_.vocabulary_term) {
    terms += workload_.shape.vocabulary / (16.0 * workload_.shape.layers * hidden);
  }
  const Flops work{(recompute ? 96 : 72) * samples * tokens * hidden * hidden * terms};
  const FlopsPerSecond peak =
      options_.flops_per_tera / 1e12 * peak_flops(cluster_.gpu(group.front()), workload_.dtype);
  return work / (static_cast<double>(group.size()) * peak);
}

Seconds HexiscaleModel::stage(Group group, int layers, int samples, bool recompute) const {
  return layers * (compute_layer(group, samples, recompute) +
                   tensor_parallel_layer(group, samples, recompute));
}

Seconds HexiscaleModel::pipeline(std::span<const Seconds> stages, int micro_batches) const {
  return options_.lock_step ? lock_step_time(stages, micro_batches)
                            : pipeline_time(stages, micro_batches);
}

Bytes HexiscaleModel::layer_memory(int tensor_parallel, int samples) const {
  const double hidden = workload_.shape.hidden;
  return 48 * hidden * hidden / tensor_parallel * ir::size_of(workload_.dtype) +
         activation(samples);
}

HexiscaleEstimate HexiscaleModel::estimate(const ir::Plan& plan) const {
  HexiscaleEstimate result;
  for (const ir::Pipeline& chain : plan.pipelines) {
    std::vector<Seconds> stages;
    for (std::size_t s = 0; s < chain.stages.size(); ++s) {
      // By device: its group may be another one in each segment.
      std::map<DeviceId, Seconds> times;
      for (const ir::Segment& segment : chain.stages[s].segments) {
        for (const ir::Group& group : segment.groups) {
          const Seconds time = stage(group.devices, count_layers(workload_, segment), group.samples,
                                     segment.recompute == ir::Recompute::full);
          for (const DeviceId device : group.devices) times[device] += time;
        }
      }
      Seconds slowest;
      for (const auto& [device, time] : times) slowest = std::max(slowest, time);
      Seconds slowest_hop;
      if (s + 1 < chain.stages.size()) {
        const std::vector<DeviceId> from = ir::devices_of(chain.stages[s]);
        for (const ir::Group& to : chain.stages[s + 1].segments.front().groups) {
          slowest_hop = std::max(slowest_hop, hop(from, to.devices, to.samples));
        }
      }
      stages.push_back(slowest + slowest_hop);
    }
    result.pipelines.push_back(options_.pipeline_factor * pipeline(stages, chain.micro_batches));
  }
  result.data_parallel = options_.data_parallel_factor *
                         (uses_zero3(plan) ? options_.zero3_factor : 1) * data_parallel(plan);
  result.data_parallel =
      gradient_rounds(plan, options_.gradient_synchronizations) * result.data_parallel;
  result.iteration = iteration_time(result.pipelines, result.data_parallel);
  return result;
}

/// Eq. 7 or the code's sum.
Seconds HexiscaleModel::data_parallel(const ir::Plan& plan) const {
  IdVector<BlockId, Seconds> by_block(workload_.blocks.size());
  for (const BlockId b : ids_from_to(workload_.first_layer(), workload_.last_layer())) {
    const std::vector<Group> groups = replica_groups(plan, b);
    if (groups.size() < 2) continue;
    std::size_t smallest = groups.front().size();
    std::size_t largest = smallest;
    for (const Group group : groups) {
      smallest = std::min(smallest, group.size());
      largest = std::max(largest, group.size());
    }
    // A member of a smaller group takes part for several of the largest.
    for (std::size_t set = 0; set < largest / smallest; ++set) {
      std::vector<DeviceId> replicas;
      for (const Group group : groups) replicas.push_back(group[set * group.size() / largest]);
      const Seconds time = data_parallel_layer(
          replicas, options_.sum_data_parallel ? static_cast<int>(smallest) : 1);
      Seconds& total = by_block[b];
      total = options_.sum_data_parallel ? total + time : std::max(total, time);
    }
  }
  Seconds all;
  Seconds worst_stage;
  for (const Seconds time : by_block) all += time;
  if (options_.sum_data_parallel) return all;
  for (const ir::Pipeline& chain : plan.pipelines) {
    for (const ir::Stage& stage : chain.stages) {
      Seconds sum;
      for (const ir::Segment& segment : stage.segments) {
        for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
          sum += by_block[b];
        }
      }
      worst_stage = std::max(worst_stage, sum);
    }
  }
  return worst_stage;
}

}  // namespace orrery::models
