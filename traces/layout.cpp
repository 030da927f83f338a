#include "traces/layout.h"

namespace orrery::traces {

TraceLayout::TraceLayout(const std::vector<TraceNode>& nodes) : first_{0} {
  for (const TraceNode& node : nodes) {
    const NodeId id = names_.push_back(node.name);
    first_.push_back(first_.back() + node.gpus);
    for (int i = 0; i < node.gpus; ++i) node_of_.push_back(id);
    by_name_.emplace(node.name, id);
  }
}

std::optional<NodeId> TraceLayout::find(const std::string& name) const {
  const auto at = by_name_.find(name);
  if (at == by_name_.end()) return std::nullopt;
  return at->second;
}

std::vector<DeviceId> TraceLayout::devices_of(const ir::EventScope& scope) const {
  if (scope.kind == ir::EventScope::Kind::devices) return scope.devices;
  std::vector<DeviceId> devices;
  if (scope.kind != ir::EventScope::Kind::node) return devices;
  for (const DeviceId device : devices_of(scope.node)) devices.push_back(device);
  return devices;
}

}  // namespace orrery::traces
