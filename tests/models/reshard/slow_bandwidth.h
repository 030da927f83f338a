// Bandwidth of a path when all GPUs of its nodes use it at once, from routes alone: the slow
// reference of models/reshard/link_ranks.h.
#pragma once
#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>
#include <vector>

#include "models/spec/cluster.h"
#include "models/spec/topology.h"

namespace orrery::models {

class SlowBandwidth {
 public:
  // Walks every route of the cluster. A node's link divides itself among the node's devices that
  // send through it or, where it leads down to them, receive through it.
  SlowBandwidth(const Cluster& cluster, const Topology& topology)
      : topology_(topology), users_(topology.links().size()), node_of_(users_.size()) {
    for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
      const NodeId node{static_cast<int>(n)};
      for (const LinkId link : topology.links_of(node)) node_of_[link.index()] = node;
    }
    std::vector<LinkId> way;
    for (const Device& a : cluster.devices) {
      for (const Device& b : cluster.devices) {
        way.clear();
        topology.route(a.id, b.id, way);
        for (const LinkId link : way) {
          const bool down = topology.name_of(link).ends_with("/down");
          const Device& user = down ? b : a;
          if (user.node == node_of_[link.index()]) users_[link.index()].insert(user.id.value);
        }
      }
    }
  }

  // Bytes per second.
  double operator()(int source, int destination) const {
    std::vector<LinkId> way;
    topology_.route({source}, {destination}, way);
    double narrowest = std::numeric_limits<double>::infinity();
    for (const LinkId id : way) {
      const Link& link = topology_.links()[id];
      if (link.uncontended) continue;
      const std::size_t users = std::max<std::size_t>(1, users_[id.index()].size());
      narrowest = std::min(narrowest, link.bandwidth.value / static_cast<double>(users));
    }
    return narrowest;
  }

 private:
  const Topology& topology_;
  std::vector<std::set<int>> users_;  // By link.
  std::vector<NodeId> node_of_;       // By link; none: the fabric's.
};

}  // namespace orrery::models
