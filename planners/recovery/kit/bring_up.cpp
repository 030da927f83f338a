#include "planners/recovery/kit/bring_up.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "models/base/ids.h"

namespace orrery::planners {
namespace {

std::uint64_t mixed(std::uint64_t value) {  // The finalizer of splitmix64.
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

std::uint64_t hash_of(const std::vector<DeviceId>& devices) {
  std::uint64_t hash = devices.size();
  for (const DeviceId device : devices) {
    hash = mixed(hash ^ static_cast<std::uint64_t>(device.value));
  }
  return hash;
}

/// By device that computes: a hash of all whom it talks to.
class Peers {
 public:
  explicit Peers(const ir::Plan& plan) {
    const std::vector<DeviceId> working = ir::working_devices(plan);
    const auto works = [&](const ir::Stage& stage) {
      const DeviceId first = stage.segments.front().groups.front().devices.front();
      return std::binary_search(working.begin(), working.end(), first);
    };
    std::map<int, std::uint64_t> holders;  // By block: its groups, in any order.
    for (const ir::Pipeline& pipeline : plan.pipelines) {
      for (const ir::Stage& stage : pipeline.stages) {
        if (!works(stage)) continue;
        for (const ir::Segment& segment : stage.segments) add_holders(segment, holders);
      }
    }
    for (const ir::Pipeline& pipeline : plan.pipelines) {
      std::vector<std::uint64_t> hashes;
      for (const ir::Stage& stage : pipeline.stages) hashes.push_back(hash_of(devices_of(stage)));
      const std::size_t stages = hashes.size();
      for (std::size_t s = 0; s < stages; ++s) {
        const ir::Stage& stage = pipeline.stages[s];
        if (!works(stage)) continue;
        const bool wraps = plan.virtual_stages > 1;
        std::uint64_t neighbors = 0;
        if (s > 0 || wraps) neighbors += mixed(hashes[(s + stages - 1) % stages]);
        if (s + 1 < stages || wraps) neighbors += mixed(~hashes[(s + 1) % stages]);
        for (const ir::Segment& segment : stage.segments) {
          std::uint64_t same = 0;
          for (int b = segment.first_block.value; b <= segment.last_block.value; ++b) {
            same += mixed(holders[b] ^ static_cast<std::uint64_t>(b));
          }
          for (const ir::Group& group : segment.groups) {
            const std::uint64_t all = mixed(hash_of(group.devices)) + same;
            for (const DeviceId device : group.devices) of_[device] += all;
          }
        }
        for (const DeviceId device : devices_of(stage)) of_[device] += neighbors;
      }
      for (const ir::Reroute& reroute : pipeline.reroutes) add_detour(plan, pipeline, reroute);
    }
  }

  const std::map<DeviceId, std::uint64_t>& of() const { return of_; }

 private:
  static void add_holders(const ir::Segment& segment, std::map<int, std::uint64_t>& holders) {
    std::uint64_t groups = 0;
    for (const ir::Group& group : segment.groups) groups += mixed(hash_of(group.devices));
    for (int b = segment.first_block.value; b <= segment.last_block.value; ++b) {
      holders[b] += groups;
    }
  }

  /// The stage that takes a micro-batch talks to the neighbors of the one that leaves it. Several
  /// micro-batches of one detour need one connection.
  void add_detour(const ir::Plan& plan, const ir::Pipeline& from, const ir::Reroute& reroute) {
    const std::size_t s = reroute.stage;
    const auto& to = plan.pipelines[reroute.to_pipeline].stages[s];
    for (const std::size_t next : {s - 1, s + 1}) {
      if (next >= from.stages.size()) continue;
      const std::vector<DeviceId> here = devices_of(to);
      const std::vector<DeviceId> there = devices_of(from.stages[next]);
      if (!detours_.emplace(here.front(), there.front()).second) continue;
      for (const DeviceId device : here) of_[device] += mixed(hash_of(there));
      for (const DeviceId device : there) {
        if (of_.contains(device)) of_[device] += mixed(hash_of(here));
      }
    }
  }

  std::map<DeviceId, std::uint64_t> of_;
  std::set<std::pair<DeviceId, DeviceId>> detours_;
};

std::set<NodeId> nodes_of(const PolicyInput& input, const ir::Plan& plan) {
  std::set<NodeId> nodes;
  for (const DeviceId device : ir::working_devices(plan)) {
    nodes.insert(input.cluster.device(device).node);
  }
  return nodes;
}

/// Nodes of `to` on which nothing ran.
std::size_t new_nodes(const PolicyInput& input, const ir::Plan* from, const ir::Plan& to) {
  const std::set<NodeId> wanted = nodes_of(input, to);
  if (from == nullptr) return wanted.size();
  const std::set<NodeId> there = nodes_of(input, *from);
  return as_size(std::count_if(wanted.begin(), wanted.end(),
                               [&](NodeId node) { return !there.contains(node); }));
}

}  // namespace

int ranks_to_connect(const ir::Plan* from, const ir::Plan& to) {
  const Peers after(to);
  if (from == nullptr) return static_cast<int>(after.of().size());
  const Peers before(*from);
  return static_cast<int>(
      std::count_if(after.of().begin(), after.of().end(), [&](const auto& rank) {
        const auto known = before.of().find(rank.first);
        return known == before.of().end() || known->second != rank.second;
      }));
}

Seconds node_start(const PolicyInput& input, const ir::Plan* from, const ir::Plan& to) {
  return new_nodes(input, from, to) > 0 ? input.runtime.start_node : Seconds{};
}

Stall bring_up(const PolicyInput& input, const ir::Plan* from, const ir::Plan& to,
               const BringUp& how) {
  const models::Runtime& runtime = input.runtime;
  const std::size_t added = new_nodes(input, from, to);
  const bool cold = added > 0 && !how.warm_spares && !how.prepared;
  const bool restarts = how.processes == Processes::restart;
  const int ranks =
      restarts ? static_cast<int>(ir::working_devices(to).size()) : ranks_to_connect(from, to);
  Stall stall;
  stall.of = Stall::Of::runtime;
  if (cold) {
    stall.duration = runtime.start_node;
    stall.source = fmt::format("{} node(s) start, {:g} s; ", added, runtime.start_node.value);
  }
  if (restarts) {
    stall.duration = std::max(stall.duration, runtime.start_process);
    stall.source += fmt::format("processes start again, {:g} s; ", runtime.start_process.value);
  }
  stall.duration += runtime.connect_rank * static_cast<double>(ranks);
  stall.source += fmt::format("communicators on {} ranks", ranks);
  return stall;
}

Stall search_time(const PolicyInput& input, std::span<const std::string> planners) {
  Stall stall{{}, "no search is priced", Stall::Of::runtime};
  for (const std::string& planner : planners) {
    const auto known = input.runtime.search.find(planner);
    if (known == input.runtime.search.end()) continue;
    stall.duration += known->second;
    stall.source = "search by " + planner;
  }
  return stall;
}

}  // namespace orrery::planners
