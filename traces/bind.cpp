#include "traces/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "models/base/check.h"
#include "models/base/id_vector.h"
#include "models/spec/topology.h"
#include "traces/layout.h"
#include "traces/names.h"

namespace orrery::traces {
namespace {

using ir::ClusterEvent;
using ir::EventScope;
using Kind = ir::EventScope::Kind;

/// The binding of one trace to one cluster.
class Binder {
 public:
  Binder(const Trace& trace, const models::Cluster& cluster, config::Position asked_at,
         config::Diagnostics& diagnostics)
      : trace_(trace),
        cluster_(cluster),
        nodes_(nodes_of(cluster)),
        from_(trace.nodes),
        to_(nodes_),
        asked_at_(std::move(asked_at)),
        diagnostics_(diagnostics) {}

  /// Of bind(): which node is which, in words; the ends of a long list.
  std::string mapping() const {
    constexpr std::size_t kShown = 3;
    if (how_.empty() || target_.size() != trace_.nodes.size()) return "";
    std::string text;
    int stand_in = 0;
    for (std::size_t n = 0; n < trace_.nodes.size(); ++n) {
      const NodeId target = target_[NodeId{static_cast<std::int32_t>(n)}];
      if (trace_.nodes[n].gpus != to_.gpus(target)) ++stand_in;
      if (n >= kShown && n + 1 < trace_.nodes.size()) continue;
      if (n + 1 == trace_.nodes.size() && n > kShown) text += ", ...";
      text += fmt::format("{}{} is {}", text.empty() ? "" : ", ", trace_.nodes[n].name,
                          to_.name(target));
    }
    text = fmt::format("nodes of the trace {}: {}", how_, text);
    if (stand_in > 0) text += fmt::format("; {} of one GPU stand for whole nodes", stand_in);
    return text;
  }

  Trace bind() {
    Trace out = trace_;
    out.nodes = nodes_;
    out.events.clear();
    if (!match_nodes() || !counts_match()) return out;
    for (const ClusterEvent& event : trace_.events) {
      ClusterEvent bound = event;
      if (bind_scope(bound.scope)) out.events.push_back(std::move(bound));
    }
    for (const std::string& problem : problems_) diagnostics_.add(asked_at_, problem);
    return out;
  }

 private:
  bool match_nodes() {
    if (by_name()) return true;
    const bool typed = std::none_of(trace_.nodes.begin(), trace_.nodes.end(),
                                    [](const TraceNode& node) { return node.gpu_type.empty(); });
    how_ = typed ? "by GPU type" : "in order";
    return typed ? by_type() : by_order();
  }

  bool counts_match() {
    bool match = true;
    for (std::size_t n = 0; n < trace_.nodes.size(); ++n) {
      const TraceNode& from = trace_.nodes[n];
      const NodeId target = target_[NodeId{static_cast<std::int32_t>(n)}];
      if (from.gpus == 1 || from.gpus == to_.gpus(target)) continue;
      diagnostics_.add(
          asked_at_,
          fmt::format("node '{}' of the trace has {} GPUs, node '{}' of cluster '{}', "
                      "which it would be, has {}",
                      from.name, from.gpus, to_.name(target), cluster_.name, to_.gpus(target)),
          "a trace of this cluster, or one whose nodes have its names");
      match = false;
      break;  // The others are the same mistake.
    }
    return match;
  }

  bool by_name() {
    for (const TraceNode& node : trace_.nodes) {
      const auto found = to_.find(node.name);
      if (!found) {
        target_.clear();
        return false;
      }
      target_.push_back(*found);
    }
    return true;
  }

  bool by_type() {
    std::map<std::string, std::vector<NodeId>> free;
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      free[nodes_[n].gpu_type].push_back({static_cast<std::int32_t>(n)});
    }
    std::map<std::string, std::size_t> wanted;
    for (const TraceNode& node : trace_.nodes) {
      const std::size_t next = wanted[node.gpu_type]++;
      const auto at = free.find(node.gpu_type);
      if (at != free.end() && next < at->second.size()) target_.push_back(at->second[next]);
    }
    if (target_.size() == trace_.nodes.size()) return true;
    for (const auto& [type, count] : wanted) {
      const auto at = free.find(type);
      const std::size_t have = at == free.end() ? 0 : at->second.size();
      if (have >= count) continue;
      diagnostics_.add(asked_at_,
                       fmt::format("the trace has {} nodes of {}, cluster '{}' has {}", count, type,
                                   cluster_.name, have),
                       have == 0 ? "GPU types: " + types() : "");
    }
    return false;
  }

  bool by_order() {
    if (trace_.nodes.size() > nodes_.size()) {
      diagnostics_.add(asked_at_, fmt::format("the trace has {} nodes, cluster '{}' has {}",
                                              trace_.nodes.size(), cluster_.name, nodes_.size()));
      return false;
    }
    for (std::size_t n = 0; n < trace_.nodes.size(); ++n) {
      target_.push_back({static_cast<std::int32_t>(n)});
    }
    return true;
  }

  std::string types() const {
    std::set<std::string> names;
    for (const TraceNode& node : nodes_) {
      if (!node.gpu_type.empty()) names.insert(node.gpu_type);
    }
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
  }

  bool bind_scope(EventScope& scope) {
    if (scope.kind == Kind::node) scope.node = target_[scope.node];
    if (scope.kind == Kind::link) return check_link(scope.link);
    if (scope.kind != Kind::devices) return true;
    std::vector<DeviceId> devices;
    for (const DeviceId device : scope.devices) {
      const NodeId node = from_.node_of(device);
      const NodeId target = target_[node];
      if (from_.gpus(node) == 1) {  // Stands for the whole node.
        for (const DeviceId all : to_.devices_of(target)) devices.push_back(all);
        continue;
      }
      const int position = from_.position(device);
      ORRERY_CHECK(position < to_.gpus(target), "device {} of a node of {}", position,
                   to_.gpus(target));
      devices.push_back({to_.first(target).value + position});
    }
    std::sort(devices.begin(), devices.end());
    scope.devices = std::move(devices);
    return true;
  }

  bool check_link(const std::string& link) {
    if (!topology_) topology_.emplace(cluster_);
    if (topology_->find(link).valid()) return true;
    problems_.insert(fmt::format("cluster '{}' has no link '{}'", cluster_.name, link));
    return false;
  }

  const Trace& trace_;
  const models::Cluster& cluster_;
  const std::vector<TraceNode> nodes_;
  const TraceLayout from_;
  const TraceLayout to_;
  config::Position asked_at_;
  config::Diagnostics& diagnostics_;
  IdVector<NodeId, NodeId> target_;           ///< By node of the trace: the one of the cluster.
  std::string how_;                           ///< "": by name.
  std::set<std::string> problems_;            ///< Each once.
  std::optional<models::Topology> topology_;  ///< Once a link is named.
};

}  // namespace

Trace bind(const Trace& trace, const models::Cluster& cluster, config::Position asked_at,
           config::Diagnostics& diagnostics, std::string* mapping) {
  Binder binder(trace, cluster, std::move(asked_at), diagnostics);
  Trace bound = binder.bind();
  if (mapping != nullptr) *mapping = binder.mapping();
  return bound;
}

std::vector<TraceNode> nodes_of(const models::Cluster& cluster) {
  std::vector<TraceNode> nodes;
  for (const models::Node& node : cluster.nodes) {
    const bool one = std::all_of(node.gpu_types.begin(), node.gpu_types.end(),
                                 [&](int type) { return type == node.gpu_types.front(); });
    nodes.push_back({node.name, one ? cluster.gpu_types[node.gpu_types.front()].name : "",
                     static_cast<int>(node.gpu_types.size())});
  }
  return nodes;
}

Trace combine(const std::vector<Trace>& traces) {
  ORRERY_CHECK(!traces.empty(), "no traces");
  std::set<std::string> names;
  bool clash = false;
  for (const Trace& trace : traces) {
    for (const TraceNode& node : trace.nodes) clash |= !names.insert(node.name).second;
  }
  Trace out;
  out.seed = traces.front().seed;
  out.horizon = traces.front().horizon;
  std::int32_t first_device = 0;
  std::int64_t sequence = 0;
  for (std::size_t t = 0; t < traces.size(); ++t) {
    const Trace& trace = traces[t];
    const auto first_node = static_cast<std::int32_t>(out.nodes.size());
    out.source += (t == 0 ? "" : " + ") + trace.source;
    out.horizon = std::min(out.horizon, trace.horizon);
    out.header.insert(out.header.end(), trace.header.begin(), trace.header.end());
    for (ClusterEvent event : trace.events) {
      if (event.scope.kind == Kind::node) event.scope.node.value += first_node;
      for (DeviceId& device : event.scope.devices) device.value += first_device;
      event.sequence = sequence++;
      out.events.push_back(std::move(event));
    }
    for (TraceNode node : trace.nodes) {
      first_device += node.gpus;
      if (clash) node.name = fmt::format("t{}-{}", t, node.name);
      out.nodes.push_back(std::move(node));
    }
  }
  sort_events(out);
  const std::vector<NodeId> absent = absent_at_start(out);
  std::erase_if(out.events, [&](const ClusterEvent& event) {
    return event.time.nanoseconds > out.horizon.count;
  });
  keep_absent(absent, out);
  return out;
}

}  // namespace orrery::traces
