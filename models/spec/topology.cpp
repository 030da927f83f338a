#include "models/spec/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "models/base/check.h"
#include "models/spec/link_calibration.h"

namespace orrery::models {
namespace {

std::string node_name(const Cluster& cluster, NodeId id) {
  const std::string& name = cluster.node(id).name;
  return name.empty() ? fmt::format("node{}", id.value) : name;
}

const LinkClass& class_of(const Cluster& cluster, const std::string& name) {
  const auto found = cluster.links.find(name);
  ORRERY_CHECK(found != cluster.links.end(), "cluster '{}' has no link class '{}'", cluster.name,
               name);
  return found->second;
}

BytesPerSecond achieved(const LinkClass& link) { return link.bandwidth * link.efficiency; }

DeviceId device_at(DeviceId first, int position) { return {first.value + position}; }

std::vector<int> all_positions(const Node& node) {
  std::vector<int> positions(node.gpu_types.size());
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int>(i);
  return positions;
}

}  // namespace

std::vector<std::pair<PathClass, const char*>> enum_names(PathClass) {
  return {{PathClass::same_device, "same_device"},
          {PathClass::nvlink, "nvlink"},
          {PathClass::pcie, "pcie"},
          {PathClass::network, "network"},
          {PathClass::host_staged, "host_staged"}};
}

Seconds network_latency(const Cluster& cluster, NodeId a, NodeId b) {
  Seconds sum;
  for (const NodeId id : {a, b}) {
    Seconds slowest;
    for (const Nic& nic : cluster.node(id).nics) {
      slowest = std::max(slowest, class_of(cluster, nic.link).latency);
    }
    sum += 0.5 * (slowest + cluster.fabric.leaf_latency);
  }
  if (cluster.node(a).leaf == cluster.node(b).leaf) return sum;
  return sum + cluster.fabric.leaf_latency + cluster.fabric.spine_latency;
}

Topology::Topology(const Cluster& cluster)
    : ports_(cluster.devices.size()), of_node_(cluster.nodes.size()), nics_(cluster.nodes.size()) {
  for (const Device& device : cluster.devices) ports_[device.id].node = device.node;
  DeviceId first{0};
  for (const NodeId node : nics_.ids()) {
    add_domains(cluster, node, first);
    add_pcie(cluster, node, first);
    add_nics(cluster, node, first);
    first = device_at(first, static_cast<int>(cluster.node(node).gpu_types.size()));
  }
  ORRERY_CHECK(first.value == cluster.size(), "cluster '{}' is not sealed", cluster.name);
  add_fabric(cluster);
  add_overrides(cluster);
  add_staging(cluster);
}

Topology::Topology(const Cluster& cluster, const ir::Profile& profile) : Topology(cluster) {
  calibrate(profile);
}

void Topology::calibrate(const ir::Profile& profile) {
  if (profile.links.empty() && profile.collectives.empty()) return;
  const auto all =
      std::make_shared<const std::map<std::string, LinkCalibration>>(link_calibrations(profile));
  IdVector<LinkId, const LinkCalibration*> of_link;
  bool any = false;
  for (const Link& link : links_) {
    const auto found = all->find(link.link_class);
    of_link.push_back(found == all->end() ? nullptr : &found->second);
    any = any || of_link.back() != nullptr;
  }
  if (!any) return;
  calibrations_ = all;
  calibration_of_ = std::move(of_link);
  for (const LinkId link : links_.ids()) {
    declared_.push_back(links_[link].bandwidth);
    const LinkCalibration* measured = calibration_of_[link];
    if (measured == nullptr || measured->segments.empty()) continue;
    links_[link].bandwidth = measured->wire_bandwidth;
  }
}

LinkId Topology::add(std::string name, const std::string& link_class, BytesPerSecond bandwidth,
                     Seconds latency, NodeId node, bool uncontended) {
  const LinkId id =
      links_.push_back({std::move(name), link_class, bandwidth, latency, uncontended});
  if (node.valid()) of_node_[node].push_back(id);
  return id;
}

Topology::Duplex Topology::add_duplex(const std::string& name, const LinkClass& link_class,
                                      NodeId node, Seconds extra_latency) {
  const Seconds latency = 0.5 * (link_class.latency + extra_latency);
  const LinkId up = add(name + "/up", link_class.name, achieved(link_class), latency, node);
  return {up, add(name + "/down", link_class.name, achieved(link_class), latency, node)};
}

void Topology::add_domains(const Cluster& cluster, NodeId id, DeviceId first) {
  const std::string prefix = node_name(cluster, id);
  const std::vector<LinkDomain>& domains = cluster.node(id).domains;
  for (std::size_t d = 0; d < domains.size(); ++d) {
    const LinkClass& link = class_of(cluster, domains[d].link);
    const PathClass kind = link.name.starts_with("pcie") ? PathClass::pcie : PathClass::nvlink;
    const int index = static_cast<int>(d);
    Duplex medium;
    if (link.shared) {
      medium.up = add(fmt::format("{}/domain{}/{}", prefix, d, link.name), link.name,
                      achieved(link), link.latency, id);
      medium.down = medium.up;
    }
    for (const int member : domains[d].members) {
      // Domains of one class that overlap need names of their own.
      const std::string name = fmt::format("{}/gpu{}/{}{}", prefix, member, link.name,
                                           d == 0 ? "" : fmt::format("/domain{}", d));
      const Duplex port = link.shared ? medium : add_duplex(name, link, id);
      ports_[device_at(first, member)].domains.push_back({index, port, kind});
    }
  }
  for (const int position : all_positions(cluster.node(id))) {
    std::vector<Domain>& own = ports_[device_at(first, position)].domains;
    std::stable_sort(own.begin(), own.end(), [&](const Domain& a, const Domain& b) {
      return links_[a.port.up].bandwidth > links_[b.port.up].bandwidth;
    });
  }
}

void Topology::add_pcie(const Cluster& cluster, NodeId id, DeviceId first) {
  const std::string prefix = node_name(cluster, id);
  const std::vector<PcieSwitch>& switches = cluster.node(id).pcie;
  for (std::size_t s = 0; s < switches.size(); ++s) {
    const LinkClass& link = class_of(cluster, switches[s].link);
    const std::string name = fmt::format("{}/pcie{}", prefix, s);
    Duplex medium, uplink;
    if (link.shared) medium = add_duplex(name + "/slots", link, id);
    if (!switches[s].uplink.empty()) {
      uplink = add_duplex(name + "/uplink", class_of(cluster, switches[s].uplink), id);
    }
    for (const int member : switches[s].members) {
      Port& port = ports_[device_at(first, member)];
      port.slot =
          link.shared ? medium : add_duplex(fmt::format("{}/gpu{}/slot", prefix, member), link, id);
      port.pcie_switch = static_cast<int>(s);
      port.uplink = uplink;
    }
  }
}

void Topology::add_nics(const Cluster& cluster, NodeId id, DeviceId first) {
  const Node& node = cluster.node(id);
  std::vector<std::vector<int>> usable(node.gpu_types.size());  // NICs, by position.
  std::vector<Duplex>& own = nics_[id];
  for (std::size_t n = 0; n < node.nics.size(); ++n) {
    const Nic& nic = node.nics[n];
    own.push_back(add_duplex(fmt::format("{}/nic{}", node_name(cluster, id), n),
                             class_of(cluster, nic.link), id, cluster.fabric.leaf_latency));
    for (const int member : nic.members.empty() ? all_positions(node) : nic.members) {
      usable[static_cast<std::size_t>(member)].push_back(static_cast<int>(n));
    }
  }
  // GPUs with the same choice are spread over it in order.
  std::map<std::vector<int>, std::vector<int>> sharers;
  for (std::size_t i = 0; i < usable.size(); ++i) sharers[usable[i]].push_back(static_cast<int>(i));
  for (const auto& [choice, positions] : sharers) {
    if (choice.empty()) continue;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      Port& port = ports_[device_at(first, positions[i])];
      port.nic = choice[i * choice.size() / positions.size()];
      port.nic_port = own[static_cast<std::size_t>(port.nic)];
    }
  }
}

BytesPerSecond Topology::nic_bandwidth(NodeId node) const {
  BytesPerSecond sum;
  for (const Duplex& nic : nics_[node]) sum += links_[nic.up].bandwidth;
  return sum;
}

void Topology::add_fabric(const Cluster& cluster) {
  std::map<int, std::size_t> numbers;  // Of the cluster file: which leaf it is.
  for (const Node& node : cluster.nodes) numbers[node.leaf] = 0;
  std::size_t leaves = 0;
  for (auto& [number, index] : numbers) index = leaves++;
  for (const Node& node : cluster.nodes) leaf_.push_back(numbers.at(node.leaf));
  const Fabric& fabric = cluster.fabric;
  const bool limited = fabric.leaf_uplink.value > 0;
  const Seconds latency = 0.5 * (fabric.leaf_latency + fabric.spine_latency);
  if (numbers.size() < 2 || (!limited && latency.value == 0)) return;
  std::vector<BytesPerSecond> below(numbers.size());
  for (const NodeId node : leaf_.ids()) below[leaf_[node]] += nic_bandwidth(node);
  for (const auto& [number, leaf] : numbers) {
    const BytesPerSecond bandwidth = limited ? fabric.leaf_uplink : below[leaf];
    const std::string name = fmt::format("leaf{}", number);
    const LinkId up = add(name + "/up", "", bandwidth, latency, {}, !limited);
    leaf_uplinks_.push_back({up, add(name + "/down", "", bandwidth, latency, {}, !limited)});
  }
}

void Topology::add_overrides(const Cluster& cluster) {
  std::map<std::pair<int, int>, const PairOverride*> last;  // the last that names a pair counts
  for (const PairOverride& pair : cluster.overrides) {
    ORRERY_CHECK(pair.a != pair.b, "an override between node {} and itself", pair.a.value);
    last[std::minmax(pair.a.value, pair.b.value)] = &pair;
  }
  for (const auto& [nodes, pair] : last) {
    const NodeId a{nodes.first}, b{nodes.second};
    const Seconds present = network_latency(cluster, a, b);
    const Seconds latency = std::max(Seconds{}, pair->latency.value_or(present) - present);
    const bool limited = pair->bandwidth.has_value();
    const BytesPerSecond bandwidth =
        limited ? *pair->bandwidth : std::min(nic_bandwidth(a), nic_bandwidth(b));
    const auto one_way = [&](NodeId from, NodeId to) {
      return add(fmt::format("{}/to/{}", node_name(cluster, from), node_name(cluster, to)), "",
                 bandwidth, latency, {}, !limited);
    };
    const LinkId up = one_way(a, b);
    overrides_.push_back({nodes, {up, one_way(b, a)}});
  }
}

void Topology::add_staging(const Cluster& cluster) {
  std::map<std::string, int> vendors;
  for (const DeviceId device : ports_.ids()) {
    const std::string& vendor = cluster.gpu(device).vendor;
    ports_[device].vendor =
        vendors.try_emplace(vendor, static_cast<int>(vendors.size())).first->second;
  }
  vendors_ = static_cast<int>(vendors.size());
  staging_of_.assign(static_cast<std::size_t>(vendors_ * vendors_), -1);
  for (const HostStaging& pair : cluster.host_staging) {
    const auto a = vendors.find(pair.vendor_a), b = vendors.find(pair.vendor_b);
    if (a == vendors.end() || b == vendors.end()) continue;
    const int index = static_cast<int>(staging_.size());
    staging_of_[static_cast<std::size_t>(a->second * vendors_ + b->second)] = index;
    staging_of_[static_cast<std::size_t>(b->second * vendors_ + a->second)] = index;
    IdVector<DeviceId, Duplex>& own = staging_.emplace_back(ports_.size());
    for (const DeviceId device : ports_.ids()) {
      const Port& port = ports_[device];
      if (port.vendor != a->second && port.vendor != b->second) continue;
      const NodeId node = port.node;
      const std::string name =
          fmt::format("{}/gpu{}/staging-{}-{}", node_name(cluster, node),
                      cluster.device(device).position, pair.vendor_a, pair.vendor_b);
      const Seconds half = 0.5 * pair.latency;
      const LinkId up = add(name + "/up", "", pair.bandwidth, half, node);
      own[device] = {up, add(name + "/down", "", pair.bandwidth, half, node)};
    }
  }
}

const Topology::Duplex* Topology::staging(DeviceId device, DeviceId peer) const {
  const int pair =
      staging_of_[static_cast<std::size_t>(ports_[device].vendor * vendors_ + ports_[peer].vendor)];
  return pair < 0 ? nullptr : &staging_[static_cast<std::size_t>(pair)][device];
}

const Topology::Duplex* Topology::override_of(NodeId a, NodeId b) const {
  if (overrides_.empty()) return nullptr;
  const std::pair<int, int> key = std::minmax(a.value, b.value);
  const auto found =
      std::lower_bound(overrides_.begin(), overrides_.end(), key,
                       [](const auto& entry, const auto& wanted) { return entry.first < wanted; });
  return found != overrides_.end() && found->first == key ? &found->second : nullptr;
}

/// Calls take(link) for each link from the one NIC to the other.
template <class F>
void Topology::walk_network(const Port& from, const Port& to, F&& take) const {
  take(from.nic_port.up);
  const std::size_t leaf = leaf_[from.node];
  const std::size_t other = leaf_[to.node];
  const bool across = leaf != other && !leaf_uplinks_.empty();
  if (across) take(leaf_uplinks_[leaf].up);
  if (const Duplex* pair = override_of(from.node, to.node)) {
    take(from.node < to.node ? pair->up : pair->down);
  }
  if (across) take(leaf_uplinks_[other].down);
  take(to.nic_port.down);
}

/// Calls take(link) for each link from source to destination, in order.
template <class F>
PathClass Topology::walk(DeviceId source, DeviceId destination, F&& take) const {
  if (source == destination) return PathClass::same_device;
  const Port& from = ports_[source];
  const Port& to = ports_[destination];
  const auto maybe = [&](LinkId link) {
    if (link.valid()) take(link);
  };
  const Duplex* out = staging(source, destination);
  const bool same_node = from.node == to.node;
  if (same_node && out == nullptr) {
    for (const Domain& a : from.domains) {
      for (const Domain& b : to.domains) {
        if (a.index != b.index) continue;
        take(a.port.up);
        if (b.port.down != a.port.up) take(b.port.down);
        return a.kind;
      }
    }
    ORRERY_CHECK(from.slot.up.valid() && to.slot.up.valid(),
                 "devices {} and {} of a node share no domain and not both have a PCIe slot",
                 source.value, destination.value);
    const bool crosses = from.pcie_switch != to.pcie_switch;
    take(from.slot.up);
    if (crosses) maybe(from.uplink.up);
    if (crosses) maybe(to.uplink.down);
    take(to.slot.down);
    return PathClass::pcie;
  }
  maybe(from.slot.up);
  maybe(from.uplink.up);
  if (out != nullptr) take(out->up);
  if (!same_node) {
    ORRERY_CHECK(from.nic >= 0 && to.nic >= 0, "devices {} and {} are not both behind a NIC",
                 source.value, destination.value);
    walk_network(from, to, take);
  }
  if (out != nullptr) take(staging(destination, source)->down);
  maybe(to.uplink.down);
  maybe(to.slot.down);
  return out != nullptr ? PathClass::host_staged : PathClass::network;
}

void Topology::route(DeviceId source, DeviceId destination, std::vector<LinkId>& links) const {
  walk(source, destination, [&](LinkId link) { links.push_back(link); });
}

void Topology::host_links(DeviceId device, bool up, std::vector<LinkId>& links) const {
  const Port& port = ports_[device];
  const LinkId slot = up ? port.slot.up : port.slot.down;
  const LinkId uplink = up ? port.uplink.up : port.uplink.down;
  if (up && slot.valid()) links.push_back(slot);
  if (uplink.valid()) links.push_back(uplink);
  if (!up && slot.valid()) links.push_back(slot);
}

void Topology::nic_link(DeviceId device, bool up, std::vector<LinkId>& links) const {
  const Port& port = ports_[device];
  if (port.nic >= 0) links.push_back(up ? port.nic_port.up : port.nic_port.down);
}

void Topology::network_links(DeviceId source, DeviceId destination,
                             std::vector<LinkId>& links) const {
  const Port& from = ports_[source];
  const Port& to = ports_[destination];
  ORRERY_CHECK(from.nic >= 0 && to.nic >= 0, "devices {} and {} are not both behind a NIC",
               source.value, destination.value);
  walk_network(from, to, [&](LinkId link) { links.push_back(link); });
}

/// Between its ends, without links.
Path Topology::blank_path(DeviceId source, DeviceId destination) const {
  Path path{{std::numeric_limits<double>::infinity()}, {}, PathClass::same_device};
  path.source_node = ports_[source].node;
  path.source_nic = ports_[source].nic;
  path.destination_node = ports_[destination].node;
  return path;
}

Path Topology::calibrated_path(DeviceId source, DeviceId destination) const {
  Path path = blank_path(source, destination);
  BytesPerSecond narrowest{std::numeric_limits<double>::infinity()};
  path.kind = walk(source, destination, [&](LinkId id) {
    path.bandwidth = std::min(path.bandwidth, links_[id].bandwidth);
    path.latency += links_[id].latency;
    const BytesPerSecond declared = declared_[id];
    if (declared > narrowest || (declared == narrowest && path.calibration != nullptr)) return;
    narrowest = declared;
    path.calibration = calibration_of_[id];
  });
  if (path.calibration != nullptr && !path.calibration->segments.empty()) {
    path.latency = path.calibration->wire_latency;
  }
  return path;
}

Path Topology::path(DeviceId source, DeviceId destination) const {
  if (calibrated()) return calibrated_path(source, destination);
  Path path = blank_path(source, destination);
  path.kind = walk(source, destination, [&](LinkId id) {
    const Link& link = links_[id];
    path.bandwidth = std::min(path.bandwidth, link.bandwidth);
    path.latency += link.latency;
  });
  return path;
}

const std::vector<LinkId>& Topology::links_of(NodeId node) const { return of_node_[node]; }

bool Topology::share_nic(DeviceId a, DeviceId b) const {
  const Port& first = ports_[a];
  const Port& second = ports_[b];
  return first.node == second.node && first.nic >= 0 && first.nic == second.nic;
}

}  // namespace orrery::models
