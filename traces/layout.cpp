#include "traces/layout.h"

namespace orrery::traces {

TraceLayout::TraceLayout(const std::vector<TraceNode>& nodes) : first_{0} {
  for (const TraceNode& node : nodes) {
    const NodeId id{static_cast<std::int32_t>(names_.size())};
    first_.push_back(first_.back() + node.gpus);
    node_of_.insert(node_of_.end(), static_cast<std::size_t>(node.gpus), id);
    names_.push_back(node.name);
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
  for (int i = 0; i < gpus(scope.node); ++i) devices.push_back({first(scope.node).value + i});
  return devices;
}

}  // namespace orrery::traces
