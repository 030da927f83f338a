#include "sim/replay/transfer_paths.h"

#include <algorithm>
#include <utility>

#include "models/base/check.h"
#include "models/cost/collective.h"

namespace orrery::sim {

using ir::Location;

/// Flow i runs from host i / (hosts - 1) to one of the others.
class TransferPaths::Table final : public RouteTable {
 public:
  void route(int source_host, int destination_host, std::vector<LinkId>& links,
             Seconds& latency) const override {
    const int other = destination_host - (destination_host > source_host ? 1 : 0);
    const std::size_t flow = source_host * (kHosts - 1) + other;
    ORRERY_CHECK(flow < paths.size(), "no path for flow {} of {}", flow, paths.size());
    links = paths[flow];
    latency = Seconds{};
  }
  std::vector<std::vector<LinkId>> paths;
};

TransferPaths::TransferPaths(const models::Cluster& cluster, const models::Topology& topology)
    : cluster_(cluster), topology_(topology), table_(std::make_shared<Table>()) {
  const bool shared = cluster.storage && cluster.storage->scope == models::BandwidthScope::shared;
  const LinkId cloud = shared ? add(cluster.storage->bandwidth) : LinkId{};
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    const models::Node& node = cluster.nodes[n];
    host_memory_.push_back(add(node.host_memory_bandwidth));
    nvme_read_.push_back(add(node.nvme_read));
    nvme_write_.push_back(add(node.nvme_write));
    const bool own = cluster.storage && !shared;
    cloud_.push_back(own ? add(cluster.storage->bandwidth) : cloud);
  }
}

LinkId TransferPaths::add(BytesPerSecond bandwidth) {
  if (bandwidth.value <= 0) return {};
  links_.push_back({bandwidth, {}});
  return {static_cast<int>(topology_.links().size() + links_.size()) - 1};
}

PlatformExtension TransferPaths::extension() const { return {links_, kHosts, table_}; }

BytesPerSecond TransferPaths::bandwidth(LinkId link) const {
  const std::size_t network = topology_.links().size();
  return link.index() < network ? topology_.links()[link].bandwidth
                                : links_[link.index() - network].bandwidth;
}

void TransferPaths::assign(std::vector<std::vector<LinkId>> paths) const {
  ORRERY_CHECK(paths.size() <= kFlows, "{} flows", paths.size());
  table_->paths = std::move(paths);
}

std::pair<int, int> TransferPaths::ends(std::size_t flow) const {
  const int source = static_cast<int>(flow) / (kHosts - 1);
  const int other = static_cast<int>(flow) % (kHosts - 1);
  const int first = cluster_.size();
  return {first + source, first + other + (other >= source ? 1 : 0)};
}

void TransferPaths::add_storage(Location location, NodeId node, bool write,
                                std::vector<LinkId>& links) const {
  if (location == Location::host_memory) {
    if (host_memory_[node].valid()) links.push_back(host_memory_[node]);
    return;
  }
  const IdVector<NodeId, LinkId>& of = location == Location::cloud ? cloud_
                                       : write                     ? nvme_write_
                                                                   : nvme_read_;
  ORRERY_CHECK(of[node].valid(), "cluster '{}' has no {} on node {}", cluster_.name,
               location == Location::cloud ? "object storage" : "NVMe", node.value);
  links.push_back(of[node]);
}

void TransferPaths::path(const models::StateTransfer& transfer, std::vector<LinkId>& links,
                         Seconds& latency) const {
  latency = Seconds{};
  const Location from = transfer.from, to = transfer.to;
  std::vector<LinkId> route;
  if (from == Location::peer && to == Location::peer) {
    topology_.route(transfer.source, transfer.destination, route);
  } else if (from == Location::cloud || to == Location::cloud) {
    if (from == to) return;
    const bool read = from == Location::cloud;
    const DeviceId device = read ? transfer.destination : transfer.source;
    const Location end = read ? to : from;
    const NodeId node = cluster_.device(device).node;
    const auto own = [&] {
      if (end == Location::peer) {
        topology_.host_links(device, !read, route);
      } else {
        add_storage(end, node, read, route);
      }
    };
    if (!read) own();
    if (!read) topology_.nic_link(device, true, route);
    add_storage(Location::cloud, node, !read, route);
    if (read) topology_.nic_link(device, false, route);
    if (read) own();
    latency = cluster_.storage->latency;
  } else {
    const NodeId source = cluster_.device(transfer.source).node;
    const NodeId destination = cluster_.device(transfer.destination).node;
    if (from == Location::peer) {
      topology_.host_links(transfer.source, true, route);
    } else {
      add_storage(from, source, false, route);
    }
    if (source != destination)
      topology_.network_links(transfer.source, transfer.destination, route);
    if (to == Location::peer) {
      topology_.host_links(transfer.destination, false, route);
    } else {
      add_storage(to, destination, true, route);
    }
  }
  const std::size_t network = topology_.links().size();
  for (const LinkId link : route) {
    if (link.index() < network) {
      const models::Link& spec = topology_.links()[link];
      latency += spec.latency;
      if (spec.uncontended) continue;
    }
    if (std::find(links.begin(), links.end(), link) == links.end()) links.push_back(link);
  }
  if (from == Location::peer && to == Location::peer && topology_.calibrated() &&
      transfer.source != transfer.destination) {
    const models::PathFunction path = [this](DeviceId a, DeviceId b) {
      return topology_.path(a, b);
    };
    latency =
        path(transfer.source, transfer.destination).latency +
        models::point_to_point_flow(transfer.source, transfer.destination, transfer.bytes, path)
            .extra_latency;
  }
}

}  // namespace orrery::sim
