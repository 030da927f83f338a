#include "traces/generate/victims.h"

#include <map>
#include <utility>

namespace orrery::traces {

Victims::Victims(const TraceLayout& layout, std::vector<int> leaf, const LemonNodes& lemons,
                 const Rng& rng)
    : layout_(layout),
      leaf_(std::move(leaf)),
      away_(layout.names().size()),
      out_(layout.names().size()),
      failure_(layout.device_count()),
      broken_(layout.names().size()) {
  std::map<int, int> seen;
  for (const NodeId node : layout.nodes()) {
    // A node is a lemon by its own stream, whatever others there are.
    const bool lemon = rng.fork(node.index()).bernoulli(lemons.share);
    weight_.push_back(lemon ? lemons.rate : 1);
    rank_.push_back(seen[leaf_[node]]++);
  }
}

void Victims::mend_all(NodeId node) {
  for (const DeviceId device : layout_.devices_of(node)) failure_[device] = 0;
  broken_[node] = 0;
}

void Victims::set_away(NodeId node, bool away) {
  away_[node] = away;
  mend_all(node);
}

void Victims::set_out(NodeId node, bool out) {
  out_[node] = out;
  mend_all(node);
}

int Victims::present(NodeId node) const {
  if (away_[node] || out_[node]) return 0;
  return layout_.gpus(node) - broken_[node];
}

bool Victims::present(DeviceId device) const {
  return failure_[device] == 0 && present(layout_.node_of(device)) > 0;
}

bool Victims::any() const {
  for (const NodeId node : layout_.nodes()) {
    if (present(node) > 0) return true;
  }
  return false;
}

void Victims::fail(DeviceId device, std::int64_t failure) {
  failure_[device] = failure;
  ++broken_[layout_.node_of(device)];
}

void Victims::mend(DeviceId device) {
  failure_[device] = 0;
  --broken_[layout_.node_of(device)];
}

NodeId Victims::draw_node(bool whole, Rng& rng) const {
  double total = 0;
  IdVector<NodeId, double> sums;
  for (const NodeId node : layout_.nodes()) {
    total += weight_[node] * (whole ? (complete(node) ? 1 : 0) : present(node));
    sums.push_back(total);
  }
  const double point = rng.uniform() * total;
  for (const NodeId node : layout_.nodes()) {
    if (point < sums[node]) return node;
  }
  return {};
}

void Victims::add_node(NodeId node, std::vector<DeviceId>& devices) const {
  for (const DeviceId device : layout_.devices_of(node)) devices.push_back(device);
}

std::vector<DeviceId> Victims::draw(FailureScope scope, int nodes, Rng& rng) const {
  std::vector<DeviceId> devices;
  const NodeId node = draw_node(scope != FailureScope::gpu, rng);
  if (!node.valid()) return devices;
  if (scope == FailureScope::node) {
    add_node(node, devices);
  } else if (scope == FailureScope::leaf) {
    for (const NodeId other : layout_.nodes()) {
      if (leaf_[other] == leaf_[node] && rank_[other] / nodes == rank_[node] / nodes &&
          complete(other)) {
        add_node(other, devices);
      }
    }
  } else {
    std::int64_t skip = rng.integer(0, present(node) - 1);
    for (const DeviceId device : layout_.devices_of(node)) {
      if (present(device) && skip-- == 0) devices.push_back(device);
    }
  }
  return devices;
}

}  // namespace orrery::traces
