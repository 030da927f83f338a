#include "sim/replay/device_states.h"

#include <algorithm>

#include "models/base/check.h"

namespace orrery::sim {

using ir::EventKind;
using ir::EventScope;

DeviceStates::DeviceStates(const models::Cluster& cluster, const std::vector<NodeId>& absent,
                           bool spot)
    : cluster_(cluster),
      state_(cluster.devices.size(), State::live),
      factor_(cluster.devices.size(), 1.0),
      price_(cluster.devices.size(), -1.0) {
  int first = 0;
  for (const models::Node& node : cluster.nodes) {
    first_.push_back(first);
    live_of_.push_back(static_cast<int>(node.gpu_types.size()));
    first += live_of_.back();
  }
  for (const NodeId node : absent) {
    for (int i = 0; i < live_of_[node]; ++i) {
      state_[DeviceId{first_[node] + i}] = State::left;
    }
    live_of_[node] = 0;
  }
  for (const int count : live_of_) live_count_ += count;
  for (const models::Device& device : cluster.devices) {
    const models::GpuType& gpu = cluster.gpu_types[device.gpu_type];
    const auto price = spot && gpu.spot_price ? gpu.spot_price : gpu.price;
    if (price) price_[device.id] = price->value;
  }
}

std::vector<DeviceId> DeviceStates::scope_of(const ir::ClusterEvent& event) const {
  std::vector<DeviceId> devices;
  switch (event.scope.kind) {
    case EventScope::Kind::devices:
      devices = event.scope.devices;
      std::sort(devices.begin(), devices.end());
      break;
    case EventScope::Kind::node: {
      const NodeId node = event.scope.node;
      const int count = static_cast<int>(cluster_.node(node).gpu_types.size());
      for (int i = 0; i < count; ++i) devices.push_back({first_[node] + i});
      break;
    }
    case EventScope::Kind::job:
      for (const models::Device& device : cluster_.devices) devices.push_back(device.id);
      break;
    case EventScope::Kind::link:
      break;
  }
  return devices;
}

void DeviceStates::kill(DeviceId device, State state, Change& change) {
  const bool was_live = live(device);
  if (was_live || state == State::left) state_[device] = state;
  if (!was_live) return;
  const bool announced = leaving_.erase(device) > 0;
  change.surprise |= state == State::failed || !announced;
  change.died.push_back(device);
  --live_count_;
  const NodeId node = cluster_.device(device).node;
  if (--live_of_[node] == 0) change.lost_nodes.push_back(node);
}

void DeviceStates::apply_health(const ir::ClusterEvent& event, Change& change) {
  ORRERY_CHECK(event.factor > 0, "event {} has factor {}", event.sequence, event.factor);
  const double factor = event.kind == EventKind::restore ? 1.0 : event.factor;
  if (event.scope.kind == EventScope::Kind::link) {
    if (factor == 1.0) {
      change.health |= links_.erase(event.scope.link) > 0;
    } else {
      double& now = links_.try_emplace(event.scope.link, 1.0).first->second;
      change.health |= now != factor;
      now = factor;
    }
  } else if (event.scope.kind == EventScope::Kind::job) {
    change.health |= job_factor_ != factor;
    job_factor_ = factor;
  } else {
    for (const DeviceId device : scope_of(event)) {
      change.health |= factor_[device] != factor;
      factor_[device] = factor;
    }
  }
}

DeviceStates::Change DeviceStates::apply(Events events) {
  Change change;
  for (const ir::ClusterEvent& event : events) apply(event, change);
  return change;
}

void DeviceStates::apply(const ir::ClusterEvent& event, Change& change) {
  const bool of_devices =
      event.scope.kind == EventScope::Kind::devices || event.scope.kind == EventScope::Kind::node;
  switch (event.kind) {
    case EventKind::fail:
    case EventKind::leave:
      change.job_failed |= event.scope.kind == EventScope::Kind::job;
      if (!of_devices) break;
      for (const DeviceId device : scope_of(event)) {
        kill(device, event.kind == EventKind::fail ? State::failed : State::left, change);
      }
      break;
    case EventKind::repair:
    case EventKind::join:
      if (!of_devices) break;
      for (const DeviceId device : scope_of(event)) {
        State& state = state_[device];
        if (event.kind == EventKind::join) leaving_.erase(device);
        if (state == State::live || (event.kind == EventKind::repair && state == State::left)) {
          continue;
        }
        state = State::live;
        ++live_count_;
        ++live_of_[cluster_.device(device).node];
      }
      break;
    case EventKind::notice:
      for (const DeviceId device : scope_of(event)) {
        if (live(device)) leaving_[device] = event.time + event.notice;
      }
      break;
    case EventKind::slow:
    case EventKind::restore:
    case EventKind::degrade:
      apply_health(event, change);
      break;
  }
  if (event.price) {
    for (const DeviceId device : scope_of(event)) price_[device] = event.price->value;
  }
}

std::vector<DeviceId> DeviceStates::live() const {
  std::vector<DeviceId> devices;
  devices.reserve(live_count_);
  for (const models::Device& device : cluster_.devices) {
    if (live(device.id)) devices.push_back(device.id);
  }
  return devices;
}

void DeviceStates::describe_in(models::JobState& state) const {
  state.live = live();
  state.leaving.clear();
  for (const auto& [device, at] : leaving_) state.leaving.push_back({device, at});
  state.slow = slow(state.live);
}

IterationConditions DeviceStates::conditions(const std::vector<DeviceId>& devices) const {
  return {slow(devices), degraded_links(), {}};
}

std::vector<models::SlowDevice> DeviceStates::slow(const std::vector<DeviceId>& devices) const {
  std::vector<models::SlowDevice> list;
  for (const DeviceId device : devices) {
    const double factor = factor_[device] * job_factor_;
    if (factor != 1.0) list.push_back({device, factor});
  }
  return list;
}

DollarsPerSecond DeviceStates::price(bool& priced) const {
  DollarsPerSecond sum;
  for (const models::Device& device : cluster_.devices) {
    if (!live(device.id)) continue;
    const double price = price_[device.id];
    priced &= price >= 0;
    if (price >= 0) sum.value += price;
  }
  return sum;
}

}  // namespace orrery::sim
