#include "planners/kit/uniform_view.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "models/base/ids.h"
#include "models/cost/device_share.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

/// Devices that may form tensor-parallel groups: of one node and one vendor.
std::map<std::pair<NodeId, std::string>, std::vector<DeviceId>> by_node(const PlannerInput& input) {
  std::map<std::pair<NodeId, std::string>, std::vector<DeviceId>> nodes;
  for (const DeviceId device : input.devices) {
    nodes[{input.cluster.device(device).node, input.cluster.gpu(device).vendor}].push_back(device);
  }
  return nodes;
}

/// Collects paths; their mean time per byte and mean latency.
class PathMean {
 public:
  void add(const models::Path& path) {
    seconds_per_byte_ += 1 / path.bandwidth.value;
    latency_ += path.latency;
    ++count_;
  }
  models::Path mean() const {
    models::Path path;
    if (count_ == 0) return path;
    path.bandwidth = BytesPerSecond{count_ / seconds_per_byte_};
    path.latency = latency_ / count_;
    return path;
  }

 private:
  double seconds_per_byte_ = 0;
  Seconds latency_;
  int count_ = 0;
};

bool same_work(const models::Block& a, const models::Block& b) {
  const auto numbers = [](const models::Block& block) {
    return std::tuple(block.kind, block.forward_flops, block.attention_flops, block.input_bytes,
                      block.output_bytes, block.kept_split, block.kept_replicated,
                      block.attention_kept, block.logits, block.memory_traffic,
                      block.tensor_collectives, block.expert_all_to_all);
  };
  const auto same_tensor = [](const models::Parameter& p, const models::Parameter& q) {
    return std::tie(p.elements, p.split_length, p.expert) ==
           std::tie(q.elements, q.split_length, q.expert);
  };
  return numbers(a) == numbers(b) &&
         std::equal(a.parameters.begin(), a.parameters.end(), b.parameters.begin(),
                    b.parameters.end(), same_tensor);
}

}  // namespace

ir::EnumNames<ViewedSpeed> enum_names(ViewedSpeed) {
  return {{ViewedSpeed::average, "average"}, {ViewedSpeed::slowest, "slowest"}};
}

std::vector<int> host_sizes(const PlannerInput& input) {
  const auto nodes = by_node(input);
  std::size_t largest = 0;
  for (const auto& [node, devices] : nodes) largest = std::max(largest, devices.size());
  const auto used = [&](int size) {
    std::size_t count = 0;
    for (const auto& [node, devices] : nodes) {
      count += devices.size() / size;
    }
    return count * as_size(size);
  };
  std::vector<int> sizes;
  for (const int size : powers_of_two(static_cast<int>(largest))) {
    if (used(size) > used(2 * size)) sizes.insert(sizes.begin(), size);
  }
  return sizes;
}

UniformView::UniformView(const PlannerInput& input, const StageCosts& costs, int gpus_per_host,
                         ViewedSpeed speed)
    : input_(input), costs_(costs), gpus_per_host_(gpus_per_host), speed_(speed) {
  cut_hosts(gpus_per_host);
  share_.assign(input.cluster.gpu_types.size(), 0);
  bool any = false;
  for (const auto& host : hosts_) {
    for (const DeviceId device : host) {
      const int type = input.cluster.device(device).gpu_type;
      share_[type] += 1.0 / devices();
      if (any && costs.capacity(type) >= capacity_) continue;
      any = true;
      capacity_ = costs.capacity(type);
      smallest_gpu_ = input.cluster.gpu(device).name;
    }
  }
  average_paths();
  const models::Workload& model = input.workload;
  for (const BlockId b : ids_from_to(model.first_layer(), model.last_layer())) {
    alike_ = alike_ && same_work(model.block(model.first_layer()), model.block(b));
  }
}

void UniformView::cut_hosts(int gpus_per_host) {
  for (const auto& [node, devices] : by_node(input_)) {
    const std::size_t size = gpus_per_host;
    for (std::size_t at = 0; at + size <= devices.size(); at += size) {
      const auto begin = devices.begin() + static_cast<std::ptrdiff_t>(at);
      hosts_.emplace_back(begin, begin + gpus_per_host);
    }
  }
  std::sort(hosts_.begin(), hosts_.end());
}

void UniformView::average_paths() {
  PathMean inside;
  PathMean between;
  for (std::size_t h = 0; h < hosts_.size(); ++h) {
    for (std::size_t g = 1; g < hosts_[h].size(); ++g) {
      inside.add(input_.topology.path(hosts_[h][g - 1], hosts_[h][g]));
    }
    if (h > 0) between.add(input_.topology.path(hosts_[h - 1].front(), hosts_[h].front()));
  }
  inside_ = inside.mean();
  between_ = between.mean();
}

Seconds UniformView::compute(const StageShape& shape) const {
  Seconds mean;
  Seconds slowest;
  for (std::size_t type = 0; type < share_.size(); ++type) {
    if (share_[type] == 0) continue;
    const Seconds time = costs_.compute(static_cast<int>(type), shape).both();
    mean += share_[type] * time;
    slowest = std::max(slowest, time);
  }
  return speed_ == ViewedSpeed::average ? mean : slowest;
}

Seconds UniformView::optimizer(const StageShape& shape) const {
  Seconds mean;
  Seconds slowest;
  for (std::size_t type = 0; type < share_.size(); ++type) {
    if (share_[type] == 0) continue;
    const Seconds time = costs_.optimizer(static_cast<int>(type), shape);
    mean += share_[type] * time;
    slowest = std::max(slowest, time);
  }
  return speed_ == ViewedSpeed::average ? mean : slowest;
}

Seconds UniformView::all_reduce(int members, Bytes bytes, const models::Path& path) const {
  if (members == 1) return Seconds{};
  return 2.0 * (members - 1) *
         (bytes / static_cast<double>(members) / path.bandwidth + path.latency);
}

Seconds UniformView::tensor_parallel(const StageShape& shape) const {
  Seconds time;
  if (shape.tensor_parallel == 1) return time;
  const ir::Segment blocks = segment_of_layers(input_.workload, shape.first, shape.layers);
  for (const BlockId b : ids_from_to(blocks.first_block, blocks.last_block)) {
    const models::Block& block = input_.workload.block(b);
    const bool again = shape.recompute == ir::Recompute::full && models::is_recomputed(block.kind);
    time += block.tensor_collectives * (again ? 3 : 2) *
            all_reduce(shape.tensor_parallel,
                       static_cast<double>(shape.samples) * block.output_bytes, inside_);
  }
  return time;
}

double UniformView::parameters(int first, int layers) const {
  const ir::Segment blocks = segment_of_layers(input_.workload, first, layers);
  return static_cast<double>(
      models::parameters(input_.workload, blocks.first_block, blocks.last_block));
}

int UniformView::representative(int first, int layers) const {
  if (!alike_ || first == 0 || first + layers == costs_.layers()) return first;
  return 1;
}

std::vector<std::vector<DeviceId>> place_stages(const UniformView& view,
                                                const std::vector<int>& sizes,
                                                const std::vector<int>& units) {
  std::vector<DeviceId> devices;
  for (const auto& host : view.hosts()) devices.insert(devices.end(), host.begin(), host.end());
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return units[a] > units[b]; });
  std::vector<std::vector<DeviceId>> placed(sizes.size());
  auto next = devices.begin();
  for (const std::size_t stage : order) {
    placed[stage].assign(next, next + sizes[stage]);
    next += sizes[stage];
  }
  return placed;
}

}  // namespace orrery::planners
