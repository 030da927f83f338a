#include "traces/split.h"

#include <algorithm>
#include <utility>

#include "models/base/id_vector.h"
#include "models/base/rng.h"

namespace orrery::traces {
namespace {

constexpr std::size_t kNobody = static_cast<std::size_t>(-1);

/// The event with the devices of its scope that belong to the part; none: nothing of it is left.
std::vector<ir::ClusterEvent> left_of(const ir::ClusterEvent& event, std::size_t part,
                                      const models::Cluster& cluster,
                                      const IdVector<DeviceId, std::size_t>& owner) {
  using Kind = ir::EventScope::Kind;
  if (event.scope.kind == Kind::link || event.scope.kind == Kind::job) return {event};
  const bool node = event.scope.kind == Kind::node;
  const std::vector<DeviceId> all =
      node ? cluster.devices_of(event.scope.node) : event.scope.devices;
  std::vector<DeviceId> own;
  for (const DeviceId device : all) {
    if (owner[device] == part) own.push_back(device);
  }
  if (own.empty()) return {};
  ir::ClusterEvent left = event;
  if (own.size() < all.size()) left.scope = {Kind::devices, std::move(own), {}, {}};
  return {std::move(left)};
}

}  // namespace

std::vector<Trace> split(const Trace& trace, const models::Cluster& cluster,
                         const std::vector<std::vector<DeviceId>>& parts) {
  IdVector<DeviceId, std::size_t> owner(cluster.devices.size(), kNobody);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const DeviceId device : parts[i]) owner[device] = i;
  }
  const std::vector<NodeId> absent = absent_at_start(trace);
  const Rng draws(trace.seed);
  std::vector<Trace> split(parts.size(), trace);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::vector<ir::ClusterEvent>& events = split[i].events;
    events.clear();
    ir::ClusterEvent others;
    others.kind = ir::EventKind::leave;
    others.cause = "belongs to another job";
    others.scope.kind = ir::EventScope::Kind::devices;
    for (const DeviceId device : owner.ids()) {
      if (owner[device] != i) others.scope.devices.push_back(device);
    }
    // Of a node that others have a part of, this is the first event.
    for (const NodeId node : absent) {
      std::vector<DeviceId> own;
      for (const DeviceId device : cluster.devices_of(node)) {
        if (owner[device] == i) own.push_back(device);
      }
      if (own.size() < cluster.devices_of(node).size()) {
        others.scope.devices.insert(others.scope.devices.end(), own.begin(), own.end());
      }
    }
    std::sort(others.scope.devices.begin(), others.scope.devices.end());
    if (!others.scope.devices.empty()) events.push_back(std::move(others));
    for (const ir::ClusterEvent& event : trace.events) {
      const bool of_job = event.scope.kind == ir::EventScope::Kind::job;
      if (of_job && event.kind == ir::EventKind::fail) {
        Rng draw = draws.fork(static_cast<std::uint64_t>(event.sequence));
        const DeviceId hit{static_cast<std::int32_t>(draw.integer(0, cluster.size() - 1))};
        if (owner[hit] != i) continue;
      }
      for (ir::ClusterEvent& left : left_of(event, i, cluster, owner)) {
        events.push_back(std::move(left));
      }
    }
    sort_events(split[i]);
  }
  return split;
}

}  // namespace orrery::traces
