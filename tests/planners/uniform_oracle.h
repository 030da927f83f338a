/// A mixed cluster as uniform, written once more in the plainest way, for the brute forces of
/// planners that see it so. Everything is computed block by block from the price of each.
#pragma once
#include <algorithm>
#include <map>
#include <vector>

#include "models/cost/device_share.h"
#include "models/cost/memory.h"
#include "models/cost/pricer.h"
#include "planners/kit/plan_parts.h"
#include "tests/planners/support.h"

namespace orrery::planners {

struct UniformOracle {
  UniformOracle(const World& w, int gpus_per_host)
      : world(w), per_host(gpus_per_host), pricer(w.cluster, w.workload, w.job, w.profile) {
    for (std::size_t n = 0; n < w.cluster.nodes.size(); ++n) {
      const auto all = w.cluster.devices_of(NodeId{static_cast<int>(n)});
      for (int h = 0; h < static_cast<int>(all.size()) / per_host; ++h) {
        for (int g = 0; g < per_host; ++g) {
          devices.push_back(all[h * per_host + g]);
        }
      }
    }
    double inside_time = 0, between_time = 0;
    int insides = 0, betweens = 0;
    capacity = 1e99;
    for (std::size_t d = 0; d < devices.size(); ++d) {
      capacity = std::min(capacity,
                          w.cluster.gpu(devices[d]).memory.value - models::kAssumedContext.value);
      const std::size_t host = per_host;
      const bool first = d % host == 0;
      if (d == 0) continue;
      const models::Path path = w.topology.path(devices[first ? d - host : d - 1], devices[d]);
      (first ? between_time : inside_time) += 1 / path.bandwidth.value;
      (first ? between_latency : inside_latency) += path.latency.value;
      ++(first ? betweens : insides);
    }
    inside_bandwidth = insides / inside_time;
    between_bandwidth = betweens / between_time;
    inside_latency /= insides;
    between_latency /= betweens;
  }

  int size() const { return static_cast<int>(devices.size()); }
  int hosts() const { return size() / per_host; }

  double ring(int members, double bytes, bool inside) const {
    if (members == 1) return 0;
    const double bandwidth = inside ? inside_bandwidth : between_bandwidth;
    const double latency = inside ? inside_latency : between_latency;
    return 2.0 * (members - 1) * (bytes / members / bandwidth + latency);
  }

  /// Forward and backward of the layers with tensor parallelism, one micro-batch.
  double passes(int first, int layers, int tensor, int samples, ir::Recompute recompute) const {
    const ir::Segment range = segment_of_layers(world.workload, first, layers);
    double time = 0;
    for (const DeviceId device : devices) {
      for (const BlockId b : ids_from_to(range.first_block, range.last_block)) {
        models::BlockQuery query;
        query.gpu_type = world.cluster.device(device).gpu_type;
        query.block = b;
        query.tensor_parallel = tensor;
        query.samples = samples;
        query.recompute = recompute;
        for (const ir::Pass pass : {ir::Pass::forward, ir::Pass::backward}) {
          query.pass = pass;
          time += pricer.block(query).value / size();
        }
      }
    }
    for (const BlockId b : ids_from_to(range.first_block, range.last_block)) {
      const models::Block& block = world.workload.block(b);
      const bool layer = models::is_recomputed(block.kind);
      const int passes = recompute == ir::Recompute::full && layer ? 3 : 2;
      time += passes * block.tensor_collectives *
              ring(tensor, samples * block.output_bytes.value, true);
    }
    return time;
  }

  double parameters(int first, int layers) const {
    const ir::Segment range = segment_of_layers(world.workload, first, layers);
    double count = 0;
    for (const BlockId b : ids_from_to(range.first_block, range.last_block)) {
      count += static_cast<double>(models::parameters(world.workload.block(b)));
    }
    return count;
  }

  double optimizer(double elements) const {
    double time = 0;
    for (const DeviceId device : devices) {
      time += pricer.optimizer(world.cluster.device(device).gpu_type, elements).value / size();
    }
    return time;
  }

  models::SegmentMemory memory(int first, int layers, int tensor, int samples,
                               ir::Recompute recompute) const {
    ir::Segment segment = segment_of_layers(world.workload, first, layers);
    segment.recompute = recompute;
    ir::Group group;
    group.tensor_parallel = tensor;
    group.samples = samples;
    return models::segment_memory(segment, group, 1, world.workload, world.job);
  }

  const World& world;
  int per_host;
  models::Pricer pricer;
  std::vector<DeviceId> devices;
  double inside_bandwidth = 0, between_bandwidth = 0, inside_latency = 0, between_latency = 0;
  double capacity = 0;  ///< Bytes of the smallest device.
};

/// Host sizes that the planners try: powers of two that use more devices than their double.
inline std::vector<int> oracle_host_sizes(const World& world) {
  const auto used = [&](int size) {
    int count = 0;
    for (const models::Node& node : world.cluster.nodes) {
      count += static_cast<int>(node.gpu_types.size()) / size * size;
    }
    return count;
  };
  std::vector<int> sizes;
  for (const int size : {1, 2, 4, 8}) {
    if (used(size) > used(2 * size)) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace orrery::planners
