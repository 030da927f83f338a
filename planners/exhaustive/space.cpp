#include "planners/exhaustive/space.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

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
  SpaceMaker(const PlannerInput& input, const SpaceLimits& limits)
      : input_(input), limits_(limits) {
    space_.classes = device_classes(input);
    for (const DeviceClass& same : space_.classes) {
      have_.push_back(static_cast<int>(same.devices.size()));
    }
    batch_ = static_cast<int>(std::min<std::int64_t>(input.job.global_batch, 1 << 20));
  }

  Space run() {
    make_groups();
    make_stages();
    make_chains();
    make_structures();
    return std::move(space_);
  }

 private:
  /// `made` parts are a `share`-th of the limit.
  bool full(std::size_t made, std::int64_t share = 1) {
    if (static_cast<std::int64_t>(made) < limits_.structures / share + 1 && !canceled(input_)) {
      return false;
    }
    space_.complete = false;
    return true;
  }

  bool affordable(const std::vector<int>& use) const {
    for (std::size_t c = 0; c < use.size(); ++c) {
      if (use[c] > have_[c]) return false;
    }
    return true;
  }

  bool affordable(const std::vector<int>& use, const std::vector<int>& more) const {
    for (std::size_t c = 0; c < use.size(); ++c) {
      if (use[c] + more[c] > have_[c]) return false;
    }
    return true;
  }

  std::vector<int> use_of(const StageKind& stage) const {
    std::vector<int> use(have_.size(), 0);
    for (const int group : stage) {
      for (const int c : space_.groups[static_cast<std::size_t>(group)]) {
        ++use[static_cast<std::size_t>(c)];
      }
    }
    return use;
  }

  const models::GpuType& gpu_of(int device_class) const {
    return input_.cluster.gpu(
        space_.classes[static_cast<std::size_t>(device_class)].devices.front());
  }

  /// Vendors that talk through host memory do not share a group.
  bool one_library(const GroupKind& group) const {
    std::set<std::string> vendors;
    for (const int c : group) vendors.insert(gpu_of(c).vendor);
    return std::none_of(input_.cluster.host_staging.begin(), input_.cluster.host_staging.end(),
                        [&](const models::HostStaging& pair) {
                          return vendors.contains(pair.vendor_a) && vendors.contains(pair.vendor_b);
                        });
  }

  /// Once for each class that can be in front.
  void add_group(const GroupKind& group) {
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (i > 0 && group[i] == group[i - 1]) continue;
      GroupKind ordered = group;
      std::rotate(ordered.begin(), ordered.begin() + static_cast<std::ptrdiff_t>(i),
                  ordered.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      space_.groups.push_back(std::move(ordered));
    }
  }

  /// Adds members of the classes from position `next` of `in_node` on.
  void extend_group(const std::vector<int>& in_node, std::size_t next, GroupKind& group,
                    const std::vector<int>& degrees) {
    if (full(space_.groups.size(), 16)) return;
    if (!group.empty() && one_library(group) &&
        std::binary_search(degrees.begin(), degrees.end(), static_cast<int>(group.size()))) {
      add_group(group);
    }
    if (degrees.empty() || std::ssize(group) >= degrees.back()) return;
    for (std::size_t i = next; i < in_node.size(); ++i) {
      const int c = in_node[i];
      if (std::count(group.begin(), group.end(), c) >= have_[static_cast<std::size_t>(c)]) continue;
      group.push_back(c);
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
      const int devices = std::accumulate(in_node.begin(), in_node.end(), 0, [&](int sum, int c) {
        return sum + have_[static_cast<std::size_t>(c)];
      });
      GroupKind group;
      extend_group(in_node, 0, group, tensor_degrees(input_.workload, input_.job, devices));
    }
    // Single devices first, then by size.
    std::stable_sort(space_.groups.begin(), space_.groups.end(),
                     [](const GroupKind& a, const GroupKind& b) { return a.size() < b.size(); });
  }

  /// Breadth first: all stages of one group, of two, ...
  void make_stages() {
    const int groups = static_cast<int>(space_.groups.size());
    std::vector<StageKind>& stages = space_.stages;
    for (int g = 0; g < groups && !full(stages.size(), 16); ++g) stages.push_back({g});
    std::size_t begin = 0;
    for (int size = 2; size <= std::min(limits_.groups, batch_); ++size) {
      const std::size_t end = stages.size();
      for (std::size_t s = begin; s < end; ++s) {
        for (int g = size == 2 ? 0 : stages[s].back(); g < groups; ++g) {
          StageKind larger = stages[s];
          larger.push_back(g);
          if (!affordable(use_of(larger))) continue;
          if (full(stages.size(), 16)) return;
          stages.push_back(std::move(larger));
        }
      }
      if (stages.size() == end) return;
      begin = end;
    }
  }

  /// Positions of the parts that can join what uses `use`; one list for each use.
  class Joinable {
   public:
    Joinable(const SpaceMaker& maker, const std::vector<std::vector<int>>& uses)
        : maker_(maker), uses_(uses) {}
    const std::vector<int>& with(const std::vector<int>& use) {
      const auto [place, added] = lists_.try_emplace(use);
      if (!added) return place->second;
      if (stored_ > kMostStored) {
        lists_.clear();
        stored_ = 0;
        return with(use);
      }
      for (std::size_t i = 0; i < uses_.size(); ++i) {
        if (maker_.affordable(use, uses_[i])) place->second.push_back(static_cast<int>(i));
      }
      stored_ += place->second.size();
      return place->second;
    }

   private:
    static constexpr std::size_t kMostStored = 10'000'000;
    const SpaceMaker& maker_;
    const std::vector<std::vector<int>>& uses_;
    std::map<std::vector<int>, std::vector<int>> lists_;
    std::size_t stored_ = 0;
  };

  void make_chains() {
    std::vector<std::vector<int>> uses;
    for (const StageKind& stage : space_.stages) uses.push_back(use_of(stage));
    Joinable joinable(*this, uses);
    std::vector<ChainKind>& chains = space_.chains;
    for (std::size_t s = 0; s < uses.size() && !full(chains.size(), 4); ++s) {
      chains.push_back({{static_cast<int>(s)}, uses[s]});
    }
    std::size_t begin = 0;
    for (int length = 2; length <= input_.workload.size(); ++length) {
      const std::size_t end = chains.size();
      for (std::size_t c = begin; c < end; ++c) {
        for (const int s : joinable.with(chains[c].use)) {
          if (full(chains.size(), 4)) return;
          ChainKind longer = chains[c];
          longer.stages.push_back(s);
          longer.use = sum(std::move(longer.use), uses[static_cast<std::size_t>(s)]);
          chains.push_back(std::move(longer));
        }
      }
      if (chains.size() == end) return;
      begin = end;
    }
  }

  void make_structures() {
    std::vector<Structure>& structures = space_.structures;
    std::vector<std::vector<int>> chain_uses;
    for (const ChainKind& chain : space_.chains) chain_uses.push_back(chain.use);
    Joinable joinable(*this, chain_uses);
    std::vector<std::vector<int>> uses;  // Of each structure.
    for (std::size_t c = 0; c < chain_uses.size() && !full(structures.size()); ++c) {
      structures.push_back({static_cast<int>(c)});
      uses.push_back(chain_uses[c]);
    }
    std::size_t begin = 0;
    for (int size = 2; size <= batch_; ++size) {
      const std::size_t end = structures.size();
      for (std::size_t s = begin; s < end; ++s) {
        const std::vector<int>& fitting = joinable.with(uses[s]);
        const auto from = std::lower_bound(fitting.begin(), fitting.end(), structures[s].back());
        for (auto c = from; c != fitting.end(); ++c) {
          if (full(structures.size())) return;
          Structure larger = structures[s];
          larger.push_back(*c);
          structures.push_back(std::move(larger));
          uses.push_back(sum(uses[s], chain_uses[static_cast<std::size_t>(*c)]));
        }
      }
      if (structures.size() == end) return;
      begin = end;
    }
  }

  static std::vector<int> sum(std::vector<int> a, const std::vector<int>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  }

  const PlannerInput& input_;
  const SpaceLimits& limits_;
  Space space_;
  std::vector<int> have_;  // Devices by class.
  int batch_ = 0;
};

}  // namespace

std::vector<DeviceClass> device_classes(const PlannerInput& input) {
  std::map<NodeId, int> in_node;
  for (const DeviceId d : input.devices) ++in_node[input.cluster.device(d).node];
  std::vector<DeviceClass> classes;
  for (const DeviceId d : input.devices) {
    const models::Device& device = input.cluster.device(d);
    const NodeId node = in_node[device.node] > 1 ? device.node : NodeId{};
    const auto place = std::find_if(classes.begin(), classes.end(), [&](const DeviceClass& same) {
      const DeviceId other = same.devices.front();
      return same.node == node && input.cluster.device(other).gpu_type == device.gpu_type &&
             exchangeable(input, other, d);
    });
    if (place == classes.end()) {
      classes.push_back({{d}, node});
    } else {
      place->devices.push_back(d);
    }
  }
  return classes;
}

ir::Group tensor_group(const PlannerInput& input, std::vector<DeviceId> devices,
                       int tensor_parallel, int samples) {
  ir::Group group;
  group.devices = std::move(devices);
  group.tensor_parallel = tensor_parallel;
  group.samples = samples;
  if (tensor_parallel > 1 && input.job.allowed.sequence_parallel &&
      input.workload.sequence_length % tensor_parallel == 0) {
    group.sequence = ir::SequenceParallelism::megatron;
  }
  return group;
}

Space make_space(const PlannerInput& input, const SpaceLimits& limits) {
  return SpaceMaker(input, limits).run();
}

}  // namespace orrery::planners::exhaustive
