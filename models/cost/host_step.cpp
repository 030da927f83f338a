#include "models/cost/host_step.h"

#include <algorithm>
#include <vector>

#include "models/base/check.h"

namespace orrery::models {
namespace {

/// The node's PCIe switch that the device is behind; none: -1.
int switch_of(const Node& node, int position) {
  for (std::size_t s = 0; s < node.pcie.size(); ++s) {
    const std::vector<int>& members = node.pcie[s].members;
    if (std::find(members.begin(), members.end(), position) != members.end()) {
      return static_cast<int>(s);
    }
  }
  return -1;
}

}  // namespace

std::string lacks_host(const Cluster& cluster, DeviceId device) {
  const Device& at = cluster.device(device);
  const Node& node = cluster.node(at.node);
  if (switch_of(node, at.position) < 0) return "pcie";
  if (node.host_memory.value <= 0 || node.host_memory_bandwidth.value <= 0) return "host_memory";
  return "";
}

HostShares::HostShares(const Cluster& cluster, std::span<const DeviceId> used)
    : cluster_(cluster), on_node_(cluster.nodes.size(), 0) {
  for (const DeviceId device : used) {
    const Device& at = cluster.device(device);
    ++on_node_[at.node];
    ++behind_switch_[{at.node, switch_of(cluster.node(at.node), at.position)}];
  }
}

HostShare HostShares::of(DeviceId device) const {
  const Device& at = cluster_.device(device);
  const Node& node = cluster_.node(at.node);
  const int number = switch_of(node, at.position);
  ORRERY_CHECK(number >= 0, "device {} has no PCIe slot", device.value);
  const PcieSwitch& pcie = node.pcie[as_size(number)];
  const auto behind = behind_switch_.find({at.node, number});
  const double neighbors = behind == behind_switch_.end() ? 1.0 : behind->second;
  const auto bandwidth = [&](const std::string& name) {
    const LinkClass& link = cluster_.links.at(name);
    return link.bandwidth * link.efficiency;
  };
  HostShare share;
  share.link = bandwidth(pcie.link);
  if (cluster_.links.at(pcie.link).shared) share.link = share.link / neighbors;
  if (!pcie.uplink.empty()) share.link = std::min(share.link, bandwidth(pcie.uplink) / neighbors);
  share.memory = node.host_memory_bandwidth / static_cast<double>(std::max(1, on_node_[at.node]));
  return share;
}

std::optional<HostShares> host_shares(const ir::Plan& plan, const Cluster& cluster) {
  if (plan.optimizer_offload <= 0) return std::nullopt;
  return HostShares(cluster, ir::working_devices(plan));
}

std::optional<HostShares> host_shares(const ir::Program& program, const Cluster& cluster) {
  if (program.header.optimizer_offload <= 0) return std::nullopt;
  std::vector<DeviceId> used;
  for (const ir::Rank& rank : program.ranks) {
    used.insert(used.end(), rank.devices.begin(), rank.devices.end());
  }
  return HostShares(cluster, used);
}

Seconds host_step(const HostShare& share, double parameters, const StateBytes& bytes) {
  const Bytes down{parameters * bytes.gradient};
  const Bytes up{parameters * bytes.weight};
  const Bytes states{parameters * (bytes.master + bytes.moments)};
  return std::max({down / share.link, up / share.link, 2 * (down + up + states) / share.memory});
}

Bytes host_bytes(double parameters, const StateBytes& bytes) {
  return Bytes{parameters * (bytes.gradient + bytes.master + bytes.moments)};
}

}  // namespace orrery::models
