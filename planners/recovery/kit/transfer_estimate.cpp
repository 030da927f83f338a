#include "planners/recovery/kit/transfer_estimate.h"

#include <algorithm>
#include <map>

namespace orrery::planners {
namespace {

/// What carries bytes: a kind and the number of the node or device.
enum class Carrier { cloud, nvme, host, nic_out, nic_in, slot };

class Loads {
 public:
  explicit Loads(const models::Cluster& cluster) : cluster_(cluster) {}

  void add(const models::StateTransfer& transfer) {
    const double bytes = transfer.bytes.value;
    const bool reads = transfer.from != ir::Location::peer || transfer.to == ir::Location::peer;
    const ir::Location store = reads ? transfer.from : transfer.to;
    const DeviceId gpu = reads ? transfer.destination : transfer.source;
    const DeviceId other = reads ? transfer.source : transfer.destination;
    const NodeId near = cluster_.device(gpu).node;
    if (store == ir::Location::cloud) {
      const bool shared = cluster_.storage->scope == models::BandwidthScope::shared;
      loads_[{Carrier::cloud, shared ? 0 : near.value}] += bytes;
      loads_[{reads ? Carrier::nic_in : Carrier::nic_out, near.value}] += bytes;
      loads_[{Carrier::slot, gpu.value}] += bytes;
      return;
    }
    const NodeId far = cluster_.device(other).node;
    if (store == ir::Location::nvme) loads_[{Carrier::nvme, far.value}] += bytes;
    if (store == ir::Location::host_memory) loads_[{Carrier::host, far.value}] += bytes;
    if (near != far) {
      loads_[{Carrier::nic_out, reads ? far.value : near.value}] += bytes;
      loads_[{Carrier::nic_in, reads ? near.value : far.value}] += bytes;
    }
    if (near != far || store != ir::Location::peer) loads_[{Carrier::slot, gpu.value}] += bytes;
  }

  Seconds longest() const {
    double seconds = 0;
    for (const auto& [key, bytes] : loads_) {
      const double bandwidth = bandwidth_of(key.first, key.second);
      if (bandwidth <= 0) continue;
      double own = bytes / bandwidth;
      if (key.first == Carrier::cloud) own += cluster_.storage->latency.value;
      seconds = std::max(seconds, own);
    }
    return {seconds};
  }

 private:
  /// 0: no limit known.
  double bandwidth_of(Carrier carrier, int number) const {
    if (carrier == Carrier::cloud) return cluster_.storage->bandwidth.value;
    if (carrier == Carrier::slot) return slot({number});
    const models::Node& node = cluster_.node({number});
    if (carrier == Carrier::nvme) return node.nvme_read.value;
    if (carrier == Carrier::host) return node.host_memory_bandwidth.value;
    return nic_bandwidth(cluster_, node);
  }

  double slot(DeviceId id) const {
    const models::Device& device = cluster_.device(id);
    for (const models::PcieSwitch& group : cluster_.node(device.node).pcie) {
      const auto& members = group.members;
      if (std::find(members.begin(), members.end(), device.position) != members.end()) {
        return link_bandwidth(cluster_, group.link);
      }
    }
    return 0;
  }

  const models::Cluster& cluster_;
  std::map<std::pair<Carrier, int>, double> loads_;
};

}  // namespace

double link_bandwidth(const models::Cluster& cluster, const std::string& link) {
  const models::LinkClass& of = cluster.links.at(link);
  return of.bandwidth.value * of.efficiency;
}

double nic_bandwidth(const models::Cluster& cluster, const models::Node& node) {
  double sum = 0;
  for (const models::Nic& nic : node.nics) sum += link_bandwidth(cluster, nic.link);
  return sum;
}

Seconds transfer_estimate(const PolicyInput& input,
                          const std::vector<models::StateTransfer>& transfers) {
  Loads loads(input.cluster);
  for (const models::StateTransfer& transfer : transfers) loads.add(transfer);
  return loads.longest();
}

Seconds stall_estimate(const PolicyInput& input, const models::RecoveryDecision& decision) {
  Seconds sum = transfer_estimate(input, decision.transfers);
  for (const models::RecoveryPhase& phase : decision.phases) sum += to_seconds(phase.duration);
  return sum;
}

}  // namespace orrery::planners
