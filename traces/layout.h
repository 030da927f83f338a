/// Where the devices of a trace's nodes are: ids count node by node, as in a cluster file.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/base/id_vector.h"
#include "models/ir/cluster_event.h"
#include "traces/trace.h"

namespace orrery::traces {

class TraceLayout {
 public:
  explicit TraceLayout(const std::vector<TraceNode>& nodes);

  IdRange<NodeId> nodes() const { return names_.ids(); }
  std::size_t device_count() const { return node_of_.size(); }
  DeviceId first(NodeId node) const { return {first_[node]}; }
  int gpus(NodeId node) const { return first_[NodeId{node.value + 1}] - first_[node]; }
  IdRange<DeviceId> devices_of(NodeId node) const {
    return {first(node), first(NodeId{node.value + 1})};
  }
  NodeId node_of(DeviceId device) const { return node_of_[device]; }
  int position(DeviceId device) const { return device.value - first(node_of(device)).value; }
  const std::string& name(NodeId node) const { return names_[node]; }
  std::optional<NodeId> find(const std::string& name) const;
  const std::vector<std::string>& names() const { return names_.values(); }

  /// Devices that the scope names, in its order; none for a link and for the job.
  std::vector<DeviceId> devices_of(const ir::EventScope& scope) const;

 private:
  IdVector<NodeId, std::int32_t> first_;  ///< One more than there are nodes.
  IdVector<DeviceId, NodeId> node_of_;
  IdVector<NodeId, std::string> names_;
  std::unordered_map<std::string, NodeId> by_name_;  ///< Only looked up in, never walked.
};

}  // namespace orrery::traces
