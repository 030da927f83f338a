#include "traces/trace.h"

#include <algorithm>
#include <tuple>

namespace orrery::traces {

AbsentNodes::AbsentNodes(const std::vector<TraceNode>& nodes) : first_{0}, seen_(nodes.size()) {
  for (const TraceNode& node : nodes) first_.push_back(first_.back() + node.gpus);
}

void AbsentNodes::meet(NodeId node, ir::EventKind kind) {
  Seen& seen = seen_[node];
  if (seen != Seen::nothing) return;
  seen = kind == ir::EventKind::join ? Seen::absent : Seen::there;
}

void AbsentNodes::add(const ir::ClusterEvent& event) {
  using Kind = ir::EventKind;
  if (event.kind == Kind::slow || event.kind == Kind::restore || event.kind == Kind::degrade) {
    return;
  }
  if (event.scope.kind == ir::EventScope::Kind::node) meet(event.scope.node, event.kind);
  if (event.scope.kind != ir::EventScope::Kind::devices) return;
  for (const DeviceId device : event.scope.devices) {
    const auto behind = std::upper_bound(first_.begin(), first_.end(), device.value);
    meet({static_cast<std::int32_t>(behind - first_.begin()) - 1}, event.kind);
  }
}

std::vector<NodeId> AbsentNodes::list() const {
  std::vector<NodeId> absent;
  for (const NodeId node : seen_.ids()) {
    if (seen_[node] == Seen::absent) absent.push_back(node);
  }
  return absent;
}

std::vector<NodeId> absent_at_start(const Trace& trace) {
  AbsentNodes absent(trace.nodes);
  for (const ir::ClusterEvent& event : trace.events) absent.add(event);
  return absent.list();
}

void keep_absent(const std::vector<NodeId>& absent, Trace& trace) {
  sort_events(trace);
  const std::vector<NodeId> shown = absent_at_start(trace);
  for (const NodeId node : absent) {
    if (std::binary_search(shown.begin(), shown.end(), node)) continue;
    ir::ClusterEvent leave;
    leave.kind = ir::EventKind::leave;
    leave.scope.kind = ir::EventScope::Kind::node;
    leave.scope.node = node;
    leave.cause = "absent";
    trace.events.push_back(std::move(leave));
  }
  sort_events(trace);
}

void sort_events(Trace& trace) {
  std::stable_sort(trace.events.begin(), trace.events.end(),
                   [](const ir::ClusterEvent& a, const ir::ClusterEvent& b) {
                     return std::tie(a.time, a.kind, a.sequence) <
                            std::tie(b.time, b.kind, b.sequence);
                   });
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    trace.events[i].sequence = static_cast<std::int64_t>(i);
  }
}

}  // namespace orrery::traces
