// Which tensor-parallel groups a cluster gives, and which of them are equal. [Hetu v2, A.3; public
// code, engine/strategy.py]
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>

#include "planners/hetu/costs.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {

int HetuGroups::count() const {
  int total = 0;
  for (const HetuClass& c : classes) total += static_cast<int>(c.groups.size());
  return total;
}

double HetuCosts::slowness(int gpu_type) const {
  const StageShape whole = shape({}, 1, 0, layers_);
  Seconds fastest = costs_.compute(gpu_type, whole).both();
  const Seconds own = fastest;
  for (const DeviceId device : input_.devices) {
    fastest =
        std::min(fastest, costs_.compute(input_.cluster.device(device).gpu_type, whole).both());
  }
  return std::isfinite(own.value) ? own / fastest : own.value;
}

/// Groups inside the nodes, in no particular order; counts idle GPUs.
std::vector<std::vector<DeviceId>> HetuCosts::form_groups(int full, bool use_rest,
                                                          const std::vector<double>& slow,
                                                          int& idle) const {
  std::vector<int> sizes;
  for (const int degree : tensor_degrees(input_.workload, input_.job, full)) {
    if (is_power_of_two(degree)) sizes.push_back(degree);
  }
  if (sizes.empty() || sizes.back() != full) return {};
  std::map<NodeId, std::map<int, std::vector<DeviceId>>> nodes;  // By GPU type.
  for (const DeviceId id : input_.devices) {
    const models::Device& device = input_.cluster.device(id);
    nodes[device.node][device.gpu_type].push_back(id);
  }
  const auto slow_of = [&](DeviceId id) {
    return slow[static_cast<std::size_t>(input_.cluster.device(id).gpu_type)];
  };
  std::vector<std::vector<DeviceId>> found;
  const auto take = [&](std::vector<DeviceId>::const_iterator from, int size) {
    found.emplace_back(from, from + size);
    std::sort(found.back().begin(), found.back().end());
  };
  for (const auto& [node, by_type] : nodes) {
    std::map<std::string, std::vector<DeviceId>> rests;  // By vendor.
    for (const auto& [type, devices] : by_type) {
      auto from = devices.begin();
      for (; devices.end() - from >= full; from += full) take(from, full);
      auto& rest = rests[input_.cluster.gpu_types[static_cast<std::size_t>(type)].vendor];
      rest.insert(rest.end(), from, devices.end());
    }
    for (auto& [vendor, rest] : rests) {
      if (!use_rest) {
        idle += static_cast<int>(rest.size());
        continue;
      }
      std::stable_sort(rest.begin(), rest.end(),
                       [&](DeviceId a, DeviceId b) { return slow_of(a) < slow_of(b); });
      std::vector<double> slowness_of_rest;
      for (const DeviceId id : rest) slowness_of_rest.push_back(slow_of(id));
      auto from = rest.cbegin();
      for (const int size : split_rest(slowness_of_rest, sizes, full, settings_.alpha)) {
        take(from, size);
        from += size;
      }
    }
  }
  return found;
}

HetuGroups HetuCosts::groups(int full, bool use_rest) const {
  HetuGroups result;
  result.full = full;
  std::vector<double> slow(input_.cluster.gpu_types.size(), 0);
  for (const DeviceId id : input_.devices) {
    const int type = input_.cluster.device(id).gpu_type;
    double& known = slow[static_cast<std::size_t>(type)];
    if (known == 0) known = slowness(type);
  }
  using Key = std::tuple<std::vector<int>, double>;
  std::map<Key, HetuClass> classes;
  for (std::vector<DeviceId>& group : form_groups(full, use_rest, slow, result.idle)) {
    std::vector<int> types;
    double slowest = 0;
    for (const DeviceId id : group) {
      types.push_back(input_.cluster.device(id).gpu_type);
      slowest =
          std::max(slowest, slow[static_cast<std::size_t>(input_.cluster.device(id).gpu_type)]);
    }
    std::sort(types.begin(), types.end());
    const Seconds time = times(group, {}).layer;
    if (!std::isfinite(time.value)) {  // A GPU that cannot compute in the job's dtype.
      result.idle += static_cast<int>(group.size());
      continue;
    }
    HetuClass& c = classes[{types, time.value}];
    c.gpu_types = types;
    c.size = static_cast<int>(group.size());
    c.slowness = slowest;
    c.layer_time = time;
    c.groups.push_back(std::move(group));
  }
  for (auto& [key, c] : classes) {
    std::sort(c.groups.begin(), c.groups.end());
    result.classes.push_back(std::move(c));
  }
  const bool paper = settings_.order == HetuOrder::paper;
  std::stable_sort(result.classes.begin(), result.classes.end(),
                   [&](const HetuClass& a, const HetuClass& b) {
                     if (!paper) return a.layer_time > b.layer_time;
                     return a.slowness != b.slowness ? a.slowness > b.slowness : a.size > b.size;
                   });
  return result;
}

}  // namespace orrery::planners
