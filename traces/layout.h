/// Where the devices of a trace's nodes are: ids count node by node, as in a cluster file.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/ir/cluster_event.h"
#include "traces/trace.h"

namespace orrery::traces {

class TraceLayout {
 public:
  explicit TraceLayout(const std::vector<TraceNode>& nodes);

  std::size_t nodes() const { return first_.size() - 1; }
  std::size_t devices() const { return node_of_.size(); }
  DeviceId first(NodeId node) const { return {first_[node.index()]}; }
  int gpus(NodeId node) const { return first_[node.index() + 1] - first_[node.index()]; }
  NodeId node_of(DeviceId device) const { return node_of_[device.index()]; }
  int position(DeviceId device) const { return device.value - first(node_of(device)).value; }
  const std::string& name(NodeId node) const { return names_[node.index()]; }
  std::optional<NodeId> find(const std::string& name) const;
  const std::vector<std::string>& names() const { return names_; }

  /// Devices that the scope names, in its order; none for a link and for the job.
  std::vector<DeviceId> devices_of(const ir::EventScope& scope) const;

 private:
  std::vector<std::int32_t> first_;  ///< One more than there are nodes.
  std::vector<NodeId> node_of_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, NodeId> by_name_;  ///< Only looked up in, never walked.
};

}  // namespace orrery::traces
