#include "planners/hetu/groups.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>

#include "planners/hetu/programs.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {

int HetuGroups::count() const {
  int total = 0;
  for (const HetuClass& c : classes) total += static_cast<int>(c.groups.size());
  return total;
}

namespace {

/// By GPU type: time of the model over that on the fastest type; 0: no device has the type.
std::vector<double> slowness(const HetuGroupRule& rule) {
  const models::Cluster& cluster = rule.input.cluster;
  std::vector<double> times(cluster.gpu_types.size(), 0);
  double fastest = kNever;
  for (const DeviceId id : rule.input.devices) {
    const int type = cluster.device(id).gpu_type;
    double& time = times[type];
    if (time == 0) time = rule.model_time(type).value;
    fastest = std::min(fastest, time);
  }
  for (double& time : times) {
    if (std::isfinite(time)) time /= fastest;
  }
  return times;
}

/// Groups inside the nodes, in no particular order; counts idle GPUs.
std::vector<std::vector<DeviceId>> groups_in_nodes(const HetuGroupRule& rule, int full,
                                                   bool use_rest, const std::vector<double>& slow,
                                                   int& idle) {
  const PlannerInput& input = rule.input;
  std::vector<int> sizes;
  for (const int degree : tensor_degrees(input.workload, input.job, full)) {
    if (is_power_of_two(degree)) sizes.push_back(degree);
  }
  if (sizes.empty() || sizes.back() != full) return {};
  std::map<NodeId, std::map<int, std::vector<DeviceId>>> nodes;  // By GPU type.
  for (const DeviceId id : input.devices) {
    const models::Device& device = input.cluster.device(id);
    nodes[device.node][device.gpu_type].push_back(id);
  }
  const auto slow_of = [&](DeviceId id) { return slow[input.cluster.device(id).gpu_type]; };
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
      auto& rest = rests[input.cluster.gpu_types[type].vendor];
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
      for (const int size : split_rest(slowness_of_rest, sizes, full, rule.alpha)) {
        take(from, size);
        from += size;
      }
    }
  }
  return found;
}

}  // namespace

HetuGroups form_groups(const HetuGroupRule& rule, int full, bool use_rest) {
  HetuGroups result;
  result.full = full;
  const std::vector<double> slow = slowness(rule);
  using Key = std::tuple<std::vector<int>, double>;
  std::map<Key, HetuClass> classes;
  for (std::vector<DeviceId>& group : groups_in_nodes(rule, full, use_rest, slow, result.idle)) {
    std::vector<int> types;
    double slowest = 0;
    for (const DeviceId id : group) {
      types.push_back(rule.input.cluster.device(id).gpu_type);
      slowest = std::max(slowest, slow[rule.input.cluster.device(id).gpu_type]);
    }
    std::sort(types.begin(), types.end());
    const Seconds time = rule.layer_time(group);
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
  const bool paper = rule.order == HetuOrder::paper;
  std::stable_sort(result.classes.begin(), result.classes.end(),
                   [&](const HetuClass& a, const HetuClass& b) {
                     if (!paper) return a.layer_time > b.layer_time;
                     return a.slowness != b.slowness ? a.slowness > b.slowness : a.size > b.size;
                   });
  return result;
}

}  // namespace orrery::planners
