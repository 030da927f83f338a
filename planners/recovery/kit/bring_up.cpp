#include "planners/recovery/kit/bring_up.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "models/base/id_vector.h"
#include "models/base/ids.h"
#include "models/schedule/schedule.h"

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
  Peers(const ir::Plan& plan, int devices) : hash_(devices, 0), works_(devices, false) {
    for (const DeviceId device : ir::working_devices(plan)) works_[device] = true;
    const auto works = [&](const ir::Stage& stage) {
      return works_[stage.segments.front().groups.front().devices.front()];
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
        const bool wraps =
            plan.virtual_stages > 1 && !models::schedule_entry(plan.schedule).folds_back;
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
            for (const DeviceId device : group.devices) hash_[device] += all;
          }
        }
        for (const DeviceId device : devices_of(stage)) hash_[device] += neighbors;
      }
      for (const ir::Reroute& reroute : pipeline.reroutes) add_detour(plan, pipeline, reroute);
    }
  }

  int count() const { return static_cast<int>(std::count(works_.begin(), works_.end(), true)); }
  /// Devices that compute here and did not, or with others, before.
  int changed_since(const Peers& before) const {
    int changed = 0;
    for (const DeviceId device : works_.ids()) {
      changed +=
          works_[device] && (!before.works_[device] || before.hash_[device] != hash_[device]);
    }
    return changed;
  }

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
      for (const DeviceId device : here) hash_[device] += mixed(hash_of(there));
      for (const DeviceId device : there) {
        if (works_[device]) hash_[device] += mixed(hash_of(here));
      }
    }
  }

  IdVector<DeviceId, std::uint64_t> hash_;
  IdVector<DeviceId, bool> works_;
  std::set<std::pair<DeviceId, DeviceId>> detours_;
};

/// Nodes of `to` on which nothing ran.
std::size_t new_nodes(const PolicyInput& input, const ir::Plan* from, const ir::Plan& to) {
  if (from == &to) return 0;
  enum class Use : std::uint8_t { none, now, wanted };
  IdVector<NodeId, Use> nodes(input.cluster.nodes.size(), Use::none);
  const auto mark = [&](const ir::Plan& plan, Use use) {
    std::size_t fresh = 0;
    for (const DeviceId device : ir::working_devices(plan)) {
      Use& known = nodes[input.cluster.device(device).node];
      if (known != Use::none) continue;
      known = use;
      ++fresh;
    }
    return fresh;
  };
  if (from != nullptr) mark(*from, Use::now);
  return mark(to, Use::wanted);
}

}  // namespace

int ranks_to_connect(const models::Cluster& cluster, const ir::Plan* from, const ir::Plan& to) {
  if (from == &to) return 0;
  const Peers after(to, cluster.size());
  return from == nullptr ? after.count() : after.changed_since(Peers(*from, cluster.size()));
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
  const int ranks = restarts ? static_cast<int>(ir::working_devices(to).size())
                             : ranks_to_connect(input.cluster, from, to);
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
