#include "traces/generate/victims.h"

#include <map>
#include <utility>

namespace orrery::traces {

Victims::Victims(const TraceLayout& layout, std::vector<int> leaf, const LemonNodes& lemons,
                 const Rng& rng)
    : layout_(layout),
      block_leaf_(std::move(leaf)),
      away_(layout.nodes()),
      out_(layout.nodes()),
      failure_(layout.devices()),
      broken_(layout.nodes()) {
  std::map<int, int> seen;
  for (std::size_t n = 0; n < layout.nodes(); ++n) {
    // A node is a lemon by its own stream, whatever others there are.
    const bool lemon = rng.fork(n).bernoulli(lemons.share);
    weight_.push_back(lemon ? lemons.rate : 1);
    rank_.push_back(seen[block_leaf_[n]]++);
  }
}

void Victims::mend_all(NodeId node) {
  for (int i = 0; i < layout_.gpus(node); ++i) {
    failure_[layout_.first(node).index() + static_cast<std::size_t>(i)] = 0;
  }
  broken_[node.index()] = 0;
}

void Victims::set_away(NodeId node, bool away) {
  away_[node.index()] = away;
  mend_all(node);
}

void Victims::set_out(NodeId node, bool out) {
  out_[node.index()] = out;
  mend_all(node);
}

int Victims::present(NodeId node) const {
  if (away_[node.index()] || out_[node.index()]) return 0;
  return layout_.gpus(node) - broken_[node.index()];
}

bool Victims::present(DeviceId device) const {
  return failure_[device.index()] == 0 && present(layout_.node_of(device)) > 0;
}

bool Victims::any() const {
  for (std::size_t n = 0; n < layout_.nodes(); ++n) {
    if (present(NodeId{static_cast<std::int32_t>(n)}) > 0) return true;
  }
  return false;
}

void Victims::fail(DeviceId device, std::int64_t failure) {
  failure_[device.index()] = failure;
  ++broken_[layout_.node_of(device).index()];
}

void Victims::mend(DeviceId device) {
  failure_[device.index()] = 0;
  --broken_[layout_.node_of(device).index()];
}

NodeId Victims::draw_node(bool whole, Rng& rng) const {
  double total = 0;
  std::vector<double> sums;
  for (std::size_t n = 0; n < layout_.nodes(); ++n) {
    const NodeId node{static_cast<std::int32_t>(n)};
    total += weight_[n] * (whole ? (complete(node) ? 1 : 0) : present(node));
    sums.push_back(total);
  }
  const double point = rng.uniform() * total;
  for (std::size_t n = 0; n < sums.size(); ++n) {
    if (point < sums[n]) return {static_cast<std::int32_t>(n)};
  }
  return {};
}

void Victims::add_node(NodeId node, std::vector<DeviceId>& devices) const {
  for (int i = 0; i < layout_.gpus(node); ++i) devices.push_back({layout_.first(node).value + i});
}

std::vector<DeviceId> Victims::draw(FailureScope scope, int nodes, Rng& rng) const {
  std::vector<DeviceId> devices;
  const NodeId node = draw_node(scope != FailureScope::gpu, rng);
  if (!node.valid()) return devices;
  if (scope == FailureScope::node) {
    add_node(node, devices);
  } else if (scope == FailureScope::leaf) {
    for (std::size_t n = 0; n < layout_.nodes(); ++n) {
      const NodeId other{static_cast<std::int32_t>(n)};
      if (block_leaf_[n] == block_leaf_[node.index()] &&
          rank_[n] / nodes == rank_[node.index()] / nodes && complete(other)) {
        add_node(other, devices);
      }
    }
  } else {
    std::int64_t skip = rng.integer(0, present(node) - 1);
    for (int i = 0; i < layout_.gpus(node); ++i) {
      const DeviceId device{layout_.first(node).value + i};
      if (present(device) && skip-- == 0) devices.push_back(device);
    }
  }
  return devices;
}

}  // namespace orrery::traces
