#include "planners/exhaustive/space.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners::exhaustive {
namespace {

bool same_path(const models::Path& a, const models::Path& b) {
  return a.bandwidth == b.bandwidth && a.latency == b.latency;
}

/// Exchanging the two changes no path.
bool exchangeable(const PlannerInput& input, DeviceId a, DeviceId b) {
  const models::Topology& net = input.topology;
  if (!same_path(net.path(a, b), net.path(b, a))) return false;
  return std::all_of(input.devices.begin(), input.devices.end(), [&](DeviceId c) {
    return c == a || c == b ||
           (same_path(net.path(a, c), net.path(b, c)) && same_path(net.path(c, a), net.path(c, b)));
  });
}

class SpaceMaker {
 public:
  SpaceMaker(const PlannerInput& input, std::int64_t most_structures)
      : input_(input), most_(most_structures) {
    space_.classes = device_classes(input);
    for (const DeviceClass& same : space_.classes) {
      have_.push_back(static_cast<int>(same.devices.size()));
    }
  }

  Space run(int most_groups) {
    const int batch = static_cast<int>(std::min<std::int64_t>(input_.job.global_batch, 1 << 20));
    make_groups();
    std::vector<Parts> groups;
    for (const std::vector<int>& group : space_.groups) {
      groups.push_back({{}, std::vector<int>(have_.size(), 0)});
      for (const int c : group) ++groups.back().use[c];
    }
    space_.stages = sequences(groups, std::min(most_groups, batch), 2, most_ / 16);
    space_.chains = sequences(space_.stages, input_.workload.size(),
                              std::numeric_limits<int>::max(), most_ / 4);
    space_.structures = sequences(space_.chains, batch, 1, most_);
    return std::move(space_);
  }

 private:
  /// Sequences of 1 to `longest` parts that there are devices for, shorter ones first; from
  /// position `sorted_from` on no part is smaller than the one before it.
  std::vector<Parts> sequences(const std::vector<Parts>& kinds, int longest, int sorted_from,
                               std::size_t most) {
    std::map<std::vector<int>, std::vector<int>> by_use;  // Kinds that use the same devices.
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      by_use[kinds[kind].use].push_back(static_cast<int>(kind));
    }
    std::vector<Parts> all = {{{}, std::vector<int>(have_.size(), 0)}};
    std::size_t begin = 0;
    bool full = false;
    for (int length = 0; length < longest && begin < all.size() && !full; ++length) {
      for (const std::size_t end = all.size(); begin < end && !full; ++begin) {
        const int first = length >= sorted_from ? all[begin].parts.back() : 0;
        for (const auto& [use, alike] : by_use) {
          if (!affordable(all[begin].use, use)) continue;
          full = full || !extend(all, begin, use, alike, first, most);
        }
      }
    }
    space_.complete = space_.complete && !full;
    all.erase(all.begin());  // The empty one.
    return all;
  }

  /// Adds all[begin] with one more part, any of `alike` from `first` on; false when there are
  /// `most` or the search is canceled.
  bool extend(std::vector<Parts>& all, std::size_t begin, const std::vector<int>& use,
              const std::vector<int>& alike, int first, std::size_t most) {
    for (auto kind = std::lower_bound(alike.begin(), alike.end(), first); kind != alike.end();
         ++kind) {
      if (all.size() > most + 1 || canceled(input_)) return false;
      Parts longer = all[begin];
      longer.parts.push_back(*kind);
      for (std::size_t c = 0; c < have_.size(); ++c) longer.use[c] += use[c];
      all.push_back(std::move(longer));
    }
    return true;
  }

  bool affordable(const std::vector<int>& use, const std::vector<int>& more) const {
    for (std::size_t c = 0; c < use.size(); ++c) {
      if (use[c] + more[c] > have_[c]) return false;
    }
    return true;
  }

  /// Vendors that talk through host memory do not share a group.
  bool one_library(const std::vector<int>& group) const {
    std::set<std::string> vendors;
    for (const int c : group) {
      vendors.insert(input_.cluster.gpu(space_.classes[c].devices.front()).vendor);
    }
    return std::none_of(input_.cluster.host_staging.begin(), input_.cluster.host_staging.end(),
                        [&](const models::HostStaging& pair) {
                          return vendors.contains(pair.vendor_a) && vendors.contains(pair.vendor_b);
                        });
  }

  /// Adds members of the classes from position `next` of `in_node` on.
  void extend_group(const std::vector<int>& in_node, std::size_t next, std::vector<int>& group,
                    const std::vector<int>& degrees) {
    if (space_.groups.size() > most_ / 16 || canceled(input_)) {
      space_.complete = false;
      return;
    }
    const int size = static_cast<int>(group.size());
    if (std::binary_search(degrees.begin(), degrees.end(), size) && one_library(group)) {
      for (std::size_t i = 0; i < group.size(); ++i) {  // Each class may be in front.
        if (i > 0 && group[i] == group[i - 1]) continue;
        std::vector<int> ordered = group;
        std::rotate(ordered.begin(), ordered.begin() + static_cast<std::ptrdiff_t>(i),
                    ordered.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        space_.groups.push_back(std::move(ordered));
      }
    }
    if (degrees.empty() || size >= degrees.back()) return;
    for (std::size_t i = next; i < in_node.size(); ++i) {
      if (std::count(group.begin(), group.end(), in_node[i]) >= have_[in_node[i]]) continue;
      group.push_back(in_node[i]);
      extend_group(in_node, i, group, degrees);
      group.pop_back();
    }
  }

  void make_groups() {
    std::map<NodeId, std::vector<int>> by_node;
    for (std::size_t c = 0; c < space_.classes.size(); ++c) {
      const NodeId node = space_.classes[c].node;
      if (node.valid()) {
        by_node[node].push_back(static_cast<int>(c));
      } else {
        space_.groups.push_back({static_cast<int>(c)});
      }
    }
    for (const auto& [node, in_node] : by_node) {
      int devices = 0;
      for (const int c : in_node) devices += have_[c];
      std::vector<int> group;
      extend_group(in_node, 0, group, tensor_degrees(input_.workload, input_.job, devices));
    }
  }

  const PlannerInput& input_;
  std::size_t most_;
  Space space_;
  std::vector<int> have_;  // Devices by class.
};

}  // namespace

std::vector<DeviceClass> device_classes(const PlannerInput& input) {
  std::map<NodeId, int> in_node;
  for (const DeviceId d : input.devices) ++in_node[input.cluster.device(d).node];
  std::vector<DeviceClass> classes;
  for (const DeviceId d : input.devices) {
    const models::Device& device = input.cluster.device(d);
    const NodeId node = in_node[device.node] > 1 ? device.node : NodeId{};
    const auto known = std::find_if(classes.begin(), classes.end(), [&](const DeviceClass& same) {
      const DeviceId other = same.devices.front();
      return same.node == node && input.cluster.device(other).gpu_type == device.gpu_type &&
             exchangeable(input, other, d);
    });
    if (known == classes.end()) {
      classes.push_back({{d}, node});
    } else {
      known->devices.push_back(d);
    }
  }
  return classes;
}

std::vector<std::vector<std::vector<std::vector<DeviceId>>>> Space::place(
    const Parts& structure) const {
  std::vector<std::size_t> next(classes.size(), 0);
  std::vector<std::vector<std::vector<std::vector<DeviceId>>>> placed;
  for (const int chain : structure.parts) {
    auto& pipeline = placed.emplace_back();
    for (const int stage : chains[chain].parts) {
      auto& own = pipeline.emplace_back();
      for (const int group : stages[stage].parts) {
        auto& members = own.emplace_back();
        for (const int c : groups[group]) {
          members.push_back(classes[c].devices[next[c]++]);
        }
      }
    }
  }
  return placed;
}

Space make_space(const PlannerInput& input, int most_groups, std::int64_t most_structures) {
  return SpaceMaker(input, most_structures).run(most_groups);
}

}  // namespace orrery::planners::exhaustive
