#include "models/reshard/link_ranks.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "models/base/check.h"
#include "models/base/id_vector.h"

namespace orrery::models {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
/// With more kinds of ports than this, ranks are computed each time: the table would be large.
constexpr std::size_t kMostPorts = 2048;

/// GPUs of the node that use each shared medium of its link domains.
void count_media(const Cluster& cluster, const Topology& topology, NodeId node,
                 IdVector<LinkId, int>& users) {
  const auto is_shared = [&](const LinkDomain& domain) {
    return cluster.links.at(domain.link).shared;
  };
  const std::vector<LinkDomain>& domains = cluster.node(node).domains;
  if (std::none_of(domains.begin(), domains.end(), is_shared)) return;
  const std::vector<DeviceId> devices = cluster.devices_of(node);
  std::vector<LinkId> route;
  for (const DeviceId device : devices) {
    std::set<LinkId> used;
    for (const DeviceId peer : devices) {
      route.clear();
      topology.route(device, peer, route);
      // A port of its own has two links on the route to a peer; one alone is a medium.
      if (route.size() == 1) used.insert(route.front());
    }
    for (const LinkId link : used) ++users[link];
  }
}

std::vector<double> values(const std::vector<BytesPerSecond>& bandwidths) {
  std::vector<double> out;
  for (const BytesPerSecond bandwidth : bandwidths) out.push_back(bandwidth.value);
  return out;
}

/// Bandwidth of reading from each node's host memory or NVMe, for each of its GPUs; unlimited where
/// the cluster gives no bandwidth.
std::vector<double> shares_of_stores(const Cluster& cluster, ir::Location store) {
  std::vector<double> out;
  for (const Node& node : cluster.nodes) {
    const double bandwidth = store == ir::Location::host_memory ? node.host_memory_bandwidth.value
                             : store == ir::Location::nvme      ? node.nvme_read.value
                                                                : 0;
    out.push_back(bandwidth > 0 ? bandwidth / static_cast<double>(node.gpu_types.size())
                                : kUnlimited);
  }
  return out;
}

}  // namespace

std::vector<BytesPerSecond> shares_of_links(const Cluster& cluster, const Topology& topology) {
  IdVector<LinkId, int> users(topology.links().size(), 0);
  std::vector<LinkId> own;
  for (const Device& device : cluster.devices) {
    own.clear();
    for (const bool up : {true, false}) {
      topology.host_links(device.id, up, own);
      topology.nic_link(device.id, up, own);
    }
    for (const LinkId link : own) ++users[link];
  }
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    count_media(cluster, topology, NodeId{static_cast<int>(n)}, users);
  }
  std::vector<BytesPerSecond> shares;
  for (const LinkId id : topology.links().ids()) {
    const Link& link = topology.links()[id];
    const double bandwidth = link.bandwidth.value / std::max(1, users[id]);
    shares.push_back({link.uncontended ? kUnlimited : bandwidth});
  }
  return shares;
}

LinkRanks::LinkRanks(const Cluster& cluster, const Topology& topology, ir::Location store)
    : cluster_(cluster), topology_(topology), store_(store) {
  ORRERY_CHECK(store != ir::Location::cloud, "the cloud is no device's");
  rank_bandwidths(values(shares_of_links(cluster, topology)), shares_of_stores(cluster, store));
  group_devices();
}

/// Numbers the bandwidths from the fastest down; what lies within the tolerance of the fastest of a
/// number shares it. A path's number is the highest of its links.
void LinkRanks::rank_bandwidths(std::vector<double> shares, std::vector<double> store_shares) {
  std::vector<double> all = shares;
  all.insert(all.end(), store_shares.begin(), store_shares.end());
  std::sort(all.begin(), all.end(), std::greater<>());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::vector<double> fastest;
  for (const double bandwidth : all) {
    if (fastest.empty() || bandwidth < fastest.back() * (1 - kTolerance)) {
      fastest.push_back(bandwidth);
    }
  }
  // The last that is not slower: there is one, as each value or a faster one within the tolerance
  // is in the list.
  const auto number = [&](double bandwidth) {
    const auto slower =
        std::upper_bound(fastest.begin(), fastest.end(), bandwidth, std::greater<>());
    return static_cast<int>(slower - fastest.begin()) - 1;
  };
  for (const double share : shares) speed_.push_back(number(share));
  for (const double share : store_shares) store_speed_.push_back(number(share));
}

/// Devices are in one group if everything that decides about a path to another node is equal: their
/// links and store, the GPU type (its vendor stages through host memory or not), the switch of
/// the leaf or the pod where these are limited, the node where it has limits of its own.
void LinkRanks::group_devices() {
  IdVector<NodeId, bool> limited(cluster_.nodes.size(), false);
  for (const PairOverride& pair : cluster_.overrides) {
    limited[pair.a] = limited[pair.b] = true;
  }
  std::map<std::vector<int>, std::size_t> groups;
  for (const Device& device : cluster_.devices) {
    const Node& node = cluster_.node(device.node);
    const bool leaves = cluster_.fabric.limits_leaves();
    std::vector<int> key = {device.gpu_type, store_speed_[device.node],
                            leaves                          ? node.leaf
                            : cluster_.fabric.limits_pods() ? cluster_.fabric.pod_of(node.leaf)
                                                            : 0,
                            leaves ? topology_.nic_of(device.id) % cluster_.fabric.rails : 0,
                            limited[device.node] ? device.node.value : -1};
    for (const bool up : {true, false}) {
      links_.clear();
      topology_.host_links(device.id, up, links_);
      topology_.nic_link(device.id, up, links_);
      int speed = 0;
      for (const LinkId link : links_) speed = std::max(speed, speed_[link]);
      key.push_back(speed);
    }
    // host_memory and nvme pass the sender's NIC only.
    links_.clear();
    topology_.nic_link(device.id, true, links_);
    key.push_back(links_.empty() ? 0 : speed_[links_.front()]);
    port_.push_back(groups.try_emplace(std::move(key), groups.size()).first->second);
  }
  ports_ = groups.size();
  if (ports_ <= kMostPorts) between_.assign(ports_ * ports_, -1);
}

int LinkRanks::measure(DeviceId source, DeviceId destination) {
  links_.clear();
  int speed = 0;
  PathClass kind = PathClass::network;
  if (store_ == ir::Location::peer) {
    topology_.route(source, destination, links_);
    kind = topology_.path(source, destination).kind;
  } else {
    const NodeId node = cluster_.device(source).node;
    speed = store_speed_[node];
    if (node != cluster_.device(destination).node) {
      topology_.network_links(source, destination, links_);
    }
    topology_.host_links(destination, false, links_);
  }
  for (const LinkId link : links_) speed = std::max(speed, speed_[link]);
  return speed * static_cast<int>(kPathClasses) + static_cast<int>(kind);
}

int LinkRanks::operator()(int source, int destination) {
  const Device& a = cluster_.device({source});
  const Device& b = cluster_.device({destination});
  if (a.node == b.node || between_.empty()) return measure(a.id, b.id);
  int& known = between_[port_[a.id] * ports_ + port_[b.id]];
  if (known < 0) known = measure(a.id, b.id);
  return known;
}

BatchedOptions LinkRanks::heuristics() {
  return {[this](int a, int b) { return (*this)(a, b); }, true,
          [](int rank) { return static_cast<int>(kind_of(rank)); }};
}

}  // namespace orrery::models
