#include "models/spec/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/spec/link_calibration.h"

namespace orrery::models {
namespace {

/// Of a link that no route crosses; links have a bandwidth.
constexpr BytesPerSecond kUnused{1};

const LinkClass& class_of(const Cluster& cluster, const std::string& name) {
  const auto found = cluster.links.find(name);
  ORRERY_CHECK(found != cluster.links.end(), "cluster '{}' has no link class '{}'", cluster.name,
               name);
  return found->second;
}

BytesPerSecond achieved(const LinkClass& link) { return link.bandwidth * link.efficiency; }

std::vector<int> all_positions(const Node& node) {
  std::vector<int> positions(node.gpu_types.size());
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int>(i);
  return positions;
}

/// Whether nodes have equal links and GPUs of equal types.
struct BuiltBefore {
  bool operator()(const Node* a, const Node* b) const {
    return std::tie(a->gpu_types, a->domains, a->pcie, a->nics) <
           std::tie(b->gpu_types, b->domains, b->pcie, b->nics);
  }
};

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
  const Fabric& fabric = cluster.fabric;
  const int leaf = cluster.node(a).leaf;
  const int other = cluster.node(b).leaf;
  if (leaf == other) return sum;
  sum = sum + fabric.leaf_latency + fabric.spine_latency;
  if (fabric.pod_of(leaf) == fabric.pod_of(other)) return sum;
  return sum + fabric.spine_latency + fabric.core_latency;
}

/// Fills a topology from a cluster.
class Topology::Builder {
 public:
  Builder(const Cluster& cluster, Topology& out) : cluster_(cluster), out_(out) {}

  void run() {
    number_vendors();
    add_nodes();
    add_fabric();
    add_overrides();
    add_staging();
  }

 private:
  using KindKey = std::tuple<std::string, double, double, bool>;

  std::uint32_t kind_of_link(const Link& link) {
    const KindKey key{link.link_class, link.bandwidth.value, link.latency.value, link.uncontended};
    std::vector<Link>& kinds = out_.links_.kinds_;
    const auto [at, fresh] = kinds_.try_emplace(key, static_cast<std::uint32_t>(kinds.size()));
    if (fresh) kinds.push_back(link);
    return at->second;
  }
  LinkId add(const Link& link) { return out_.links_.kind_of_.push_back(kind_of_link(link)); }
  Duplex add_duplex(const Link& link) {
    const LinkId up = add(link);
    return {up, add(link)};
  }

  /// Links of a node that is being described.
  Local add(NodeKind& kind, std::string name, const Link& link) {
    kind.links.push_back({std::move(name), kind_of_link(link)});
    return static_cast<Local>(kind.links.size()) - 1;
  }
  LocalDuplex add_duplex(NodeKind& kind, const std::string& name, const LinkClass& link_class,
                         Seconds extra_latency = {}) {
    const Link link{link_class.name, achieved(link_class),
                    0.5 * (link_class.latency + extra_latency)};
    const Local up = add(kind, name + "/up", link);
    return {up, add(kind, name + "/down", link)};
  }
  const Link& link_of(const NodeKind& kind, Local link) const {
    return out_.links_.kinds_[kind.links[link].kind];
  }

  void number_vendors() {
    std::map<std::string, int> vendors;
    std::vector<int> of_type(cluster_.gpu_types.size(), -1);
    for (const Node& node : cluster_.nodes) {
      for (const int type : node.gpu_types) {
        int& vendor = of_type[type];
        if (vendor >= 0) continue;
        const std::string& name = cluster_.gpu_types[type].vendor;
        vendor = vendors.try_emplace(name, static_cast<int>(vendors.size())).first->second;
      }
    }
    vendor_of_type_ = std::move(of_type);
    vendors_ = std::move(vendors);
  }

  void add_nodes() {
    std::map<const Node*, std::uint32_t, BuiltBefore> known;
    out_.nodes_.reserve(cluster_.nodes.size());
    out_.names_.reserve(cluster_.nodes.size());
    out_.node_of_.reserve(cluster_.devices.size());
    std::map<int, std::uint32_t> leaves;  // By the cluster file's number.
    for (const Node& node : cluster_.nodes) leaves.try_emplace(node.leaf, 0);
    for (auto& [number, leaf] : leaves) {
      leaf = static_cast<std::uint32_t>(out_.leaf_numbers_.size());
      out_.leaf_numbers_.push_back(number);
    }
    for (const Node& node : cluster_.nodes) {
      const auto [at, fresh] =
          known.try_emplace(&node, static_cast<std::uint32_t>(out_.kinds_.size()));
      if (fresh) out_.kinds_.push_back(make_kind(node));
      const NodeKind& kind = out_.kinds_[at->second];
      const NodeId id = out_.names_.push_back(node.name);
      out_.nodes_.push_back({at->second, leaves.at(node.leaf), out_.links_.kind_of_.next_id(),
                             out_.node_of_.next_id()});
      for (const LocalLink& link : kind.links) out_.links_.kind_of_.push_back(link.kind);
      for (std::size_t i = 0; i < kind.ports.size(); ++i) out_.node_of_.push_back(id);
    }
    ORRERY_CHECK(out_.node_of_.size() == cluster_.devices.size(), "cluster '{}' is not sealed",
                 cluster_.name);
  }

  NodeKind make_kind(const Node& node) {
    NodeKind kind;
    kind.ports.resize(node.gpu_types.size());
    for (std::size_t i = 0; i < kind.ports.size(); ++i) {
      kind.ports[i].vendor = vendor_of_type_[node.gpu_types[i]];
    }
    add_domains(node, kind);
    add_pcie(node, kind);
    add_nics(node, kind);
    return kind;
  }

  void add_domains(const Node& node, NodeKind& kind) {
    const std::vector<LinkDomain>& domains = node.domains;
    for (std::size_t d = 0; d < domains.size(); ++d) {
      const LinkClass& link = class_of(cluster_, domains[d].link);
      const PathClass path = link.name.starts_with("pcie") ? PathClass::pcie : PathClass::nvlink;
      const int index = static_cast<int>(d);
      LocalDuplex medium;
      if (link.shared) {
        medium.up = add(kind, fmt::format("/domain{}/{}", d, link.name),
                        {link.name, achieved(link), link.latency});
        medium.down = medium.up;
      }
      for (const int member : domains[d].members) {
        // Domains of one class that overlap need names of their own.
        const std::string name = fmt::format("/gpu{}/{}{}", member, link.name,
                                             d == 0 ? "" : fmt::format("/domain{}", d));
        Domain& domain = kind.ports[member].domains.emplace_back();
        domain.index = index;
        domain.kind = path;
        if (link.mesh) {
          domain.to = add_mesh_links(kind, name, member, domains[d].members, link);
        } else {
          domain.port = link.shared ? medium : add_duplex(kind, name, link);
        }
      }
    }
    const auto bandwidth = [&](const Domain& domain) {
      return achieved(class_of(cluster_, domains[domain.index].link));
    };
    for (Port& port : kind.ports) {
      std::stable_sort(
          port.domains.begin(), port.domains.end(),
          [&](const Domain& a, const Domain& b) { return bandwidth(a) > bandwidth(b); });
    }
  }

  /// From a member of a mesh to the others, by their position.
  std::vector<Local> add_mesh_links(NodeKind& kind, const std::string& name, int member,
                                    const std::vector<int>& members, const LinkClass& link) {
    std::vector<Local> to(kind.ports.size(), -1);
    Link own{link.name, achieved(link), link.latency};
    own.mesh = true;
    for (const int other : members) {
      if (other != member) to[other] = add(kind, fmt::format("{}/to/gpu{}", name, other), own);
    }
    return to;
  }

  void add_pcie(const Node& node, NodeKind& kind) {
    const std::vector<PcieSwitch>& switches = node.pcie;
    for (std::size_t s = 0; s < switches.size(); ++s) {
      const LinkClass& link = class_of(cluster_, switches[s].link);
      const std::string name = fmt::format("/pcie{}", s);
      LocalDuplex medium, uplink;
      if (link.shared) medium = add_duplex(kind, name + "/slots", link);
      if (!switches[s].uplink.empty()) {
        uplink = add_duplex(kind, name + "/uplink", class_of(cluster_, switches[s].uplink));
      }
      for (const int member : switches[s].members) {
        Port& port = kind.ports[member];
        port.slot =
            link.shared ? medium : add_duplex(kind, fmt::format("/gpu{}/slot", member), link);
        port.pcie_switch = static_cast<int>(s);
        port.uplink = uplink;
      }
    }
  }

  void add_nics(const Node& node, NodeKind& kind) {
    std::vector<std::vector<int>> usable(node.gpu_types.size());  // NICs, by position.
    for (std::size_t n = 0; n < node.nics.size(); ++n) {
      const Nic& nic = node.nics[n];
      kind.nics.push_back(add_duplex(kind, fmt::format("/nic{}", n), class_of(cluster_, nic.link),
                                     cluster_.fabric.leaf_latency));
      for (const int member : nic.members.empty() ? all_positions(node) : nic.members) {
        usable[member].push_back(static_cast<int>(n));
      }
    }
    // GPUs with the same choice are spread over it in order.
    std::map<std::vector<int>, std::vector<int>> sharers;
    for (std::size_t i = 0; i < usable.size(); ++i) {
      sharers[usable[i]].push_back(static_cast<int>(i));
    }
    for (const auto& [choice, positions] : sharers) {
      if (choice.empty()) continue;
      for (std::size_t i = 0; i < positions.size(); ++i) {
        Port& port = kind.ports[positions[i]];
        port.nic = choice[i * choice.size() / positions.size()];
        port.nic_port = kind.nics[port.nic];
      }
    }
  }

  /// Sum over the node's NICs that hang on switch `rail` of its leaf.
  BytesPerSecond nic_bandwidth(const PlacedNode& node, std::size_t rail, std::size_t rails) const {
    BytesPerSecond sum;
    const NodeKind& kind = out_.kinds_[node.kind];
    for (std::size_t n = rail; n < kind.nics.size(); n += rails) {
      sum += link_of(kind, kind.nics[n].up).bandwidth;
    }
    return sum;
  }

  void add_fabric() {
    const Fabric& fabric = cluster_.fabric;
    ORRERY_CHECK(fabric.rails > 0, "{} rails", fabric.rails);
    out_.rails_ = fabric.rails;
    std::map<int, std::uint32_t> pods;
    for (const int leaf : out_.leaf_numbers_) pods.try_emplace(fabric.pod_of(leaf), 0);
    for (auto& [number, pod] : pods) {
      pod = static_cast<std::uint32_t>(out_.pod_numbers_.size());
      out_.pod_numbers_.push_back(number);
    }
    for (const int leaf : out_.leaf_numbers_) {
      out_.pod_of_leaf_.push_back(pods.at(fabric.pod_of(leaf)));
    }
    const std::size_t switches = out_.leaf_numbers_.size() * out_.rails_;
    std::vector<BytesPerSecond> below(switches);  // NICs, by leaf switch.
    for (const PlacedNode& node : out_.nodes_) {
      for (std::size_t rail = 0; rail < out_.rails_; ++rail) {
        below[node.leaf * out_.rails_ + rail] += nic_bandwidth(node, rail, out_.rails_);
      }
    }
    out_.first_leaf_uplink_ = out_.links_.kind_of_.next_id();
    const Seconds to_spine = 0.5 * (fabric.leaf_latency + fabric.spine_latency);
    if (switches > 1) {
      out_.has_leaf_uplinks_ =
          add_uplinks(fabric.leaf_uplink, fabric.leaf_oversubscription, to_spine, below);
    }
    std::vector<BytesPerSecond> below_spine(pods.size());
    for (std::size_t s = 0; s < switches; ++s) {
      below_spine[out_.pod_of_leaf_[s / out_.rails_]] += below[s];
    }
    out_.first_pod_uplink_ = out_.links_.kind_of_.next_id();
    const Seconds to_core = 0.5 * (fabric.spine_latency + fabric.core_latency);
    if (pods.size() > 1) {
      out_.has_pod_uplinks_ =
          add_uplinks(fabric.spine_uplink, fabric.spine_oversubscription, to_core, below_spine);
    }
  }

  /// The uplink of each switch, unless nothing is known of them; `below` becomes their bandwidths.
  bool add_uplinks(BytesPerSecond given, double oversubscription, Seconds latency,
                   std::vector<BytesPerSecond>& below) {
    const bool limited = given.value > 0 || oversubscription > 0;
    if (!limited && latency.value == 0) return false;
    for (BytesPerSecond& bandwidth : below) {
      if (given.value > 0) {
        bandwidth = given;
      } else if (limited) {
        bandwidth = bandwidth / oversubscription;
      }
      // Nodes may have fewer NICs than rails. No route crosses the uplink of a switch without any.
      const bool unused = bandwidth.value == 0;
      add_duplex({"", unused ? kUnused : bandwidth, latency, !limited || unused});
    }
    return true;
  }

  void add_overrides() {
    out_.first_override_ = out_.links_.kind_of_.next_id();
    std::map<std::pair<int, int>, const PairOverride*> last;  // the last that names a pair counts
    for (const PairOverride& pair : cluster_.overrides) {
      ORRERY_CHECK(pair.a != pair.b, "an override between node {} and itself", pair.a.value);
      last[std::minmax(pair.a.value, pair.b.value)] = &pair;
    }
    for (const auto& [nodes, pair] : last) {
      const NodeId a{nodes.first}, b{nodes.second};
      const Seconds present = network_latency(cluster_, a, b);
      const Seconds latency = std::max(Seconds{}, pair->latency.value_or(present) - present);
      const bool limited = pair->bandwidth.has_value();
      const BytesPerSecond bandwidth = limited ? *pair->bandwidth
                                               : std::min(nic_bandwidth(out_.nodes_[a], 0, 1),
                                                          nic_bandwidth(out_.nodes_[b], 0, 1));
      out_.overrides_.push_back({nodes, add_duplex({"", bandwidth, latency, !limited})});
    }
  }

  void add_staging() {
    out_.first_staging_ = out_.links_.kind_of_.next_id();
    out_.vendors_ = static_cast<int>(vendors_.size());
    out_.staging_of_.assign(as_size(out_.vendors_ * out_.vendors_), -1);
    for (const HostStaging& pair : cluster_.host_staging) {
      const auto a = vendors_.find(pair.vendor_a), b = vendors_.find(pair.vendor_b);
      if (a == vendors_.end() || b == vendors_.end()) continue;
      const int index = static_cast<int>(out_.staging_.size());
      out_.staging_of_[as_size(a->second * out_.vendors_ + b->second)] = index;
      out_.staging_of_[as_size(b->second * out_.vendors_ + a->second)] = index;
      Staging& own = out_.staging_.emplace_back();
      own.name = fmt::format("staging-{}-{}", pair.vendor_a, pair.vendor_b);
      own.of_device.resize(out_.node_of_.size());
      for (const DeviceId device : out_.node_of_.ids()) {
        const int vendor = out_.end_of(device).port.vendor;
        if (vendor != a->second && vendor != b->second) continue;
        own.devices.push_back(device);
        own.of_device[device] = add_duplex({"", pair.bandwidth, 0.5 * pair.latency});
      }
    }
  }

  const Cluster& cluster_;
  Topology& out_;
  std::map<KindKey, std::uint32_t> kinds_;
  std::vector<int> vendor_of_type_;
  std::map<std::string, int> vendors_;
};

/// Filled when it is first needed.
struct Topology::NodesByName {
  std::once_flag filled;
  std::vector<std::pair<std::string, NodeId>> nodes;  ///< Ascending.
};

Topology::Topology(const Cluster& cluster) : by_name_(std::make_shared<NodesByName>()) {
  Builder(cluster, *this).run();
}

Topology::Topology(const Cluster& cluster, const ir::Profile& profile) : Topology(cluster) {
  calibrate(profile);
}

void Topology::calibrate(const ir::Profile& profile) {
  if (profile.links.empty() && profile.collectives.empty() && profile.collective_ways.empty()) {
    return;
  }
  const auto all =
      std::make_shared<const std::map<std::string, LinkCalibration>>(link_calibrations(profile));
  std::vector<const LinkCalibration*> of_kind;
  bool any = false;
  for (const Link& kind : links_.kinds_) {
    const auto found = all->find(kind.link_class);
    of_kind.push_back(found == all->end() ? nullptr : &found->second);
    any = any || of_kind.back() != nullptr;
  }
  if (!any) return;
  calibrations_ = all;
  calibration_of_ = std::move(of_kind);
  for (std::size_t k = 0; k < calibration_of_.size(); ++k) {
    declared_.push_back(links_.kinds_[k].bandwidth);
    const LinkCalibration* measured = calibration_of_[k];
    if (measured == nullptr || measured->segments.empty()) continue;
    links_.kinds_[k].bandwidth = measured->wire_bandwidth;
  }
}

std::string Topology::node_name(NodeId node) const {
  return names_[node].empty() ? fmt::format("node{}", node.value) : names_[node];
}

NodeId Topology::node_of(LinkId link) const {
  if (link < first_leaf_uplink_) {
    const auto past =
        std::upper_bound(nodes_.begin(), nodes_.end(), link,
                         [](LinkId id, const PlacedNode& node) { return id < node.first_link; });
    return {static_cast<std::int32_t>(past - nodes_.begin()) - 1};
  }
  return link < first_staging_ ? NodeId{} : node_of_[staged(link).second];
}

/// Whose link of host staging it is.
std::pair<const Topology::Staging*, DeviceId> Topology::staged(LinkId link) const {
  std::size_t at = (link.value - first_staging_.value) / 2;
  for (const Staging& staging : staging_) {
    if (at < staging.devices.size()) return {&staging, staging.devices[at]};
    at -= staging.devices.size();
  }
  ORRERY_CHECK(false, "no link {}", link.value);
  return {};
}

std::string Topology::name_of(LinkId link) const {
  const auto direction = [&](LinkId first) {
    return (link.value - first.value) % 2 == 0 ? "up" : "down";
  };
  const auto number = [&](LinkId first) { return as_size(link.value - first.value) / 2; };
  if (link < first_leaf_uplink_) {
    const NodeId node = node_of(link);
    const std::size_t local = link.value - nodes_[node].first_link.value;
    return node_name(node) + kinds_[nodes_[node].kind].links[local].name;
  }
  if (link < first_pod_uplink_) {
    const std::size_t at = number(first_leaf_uplink_);
    const std::string leaf = fmt::format("leaf{}", leaf_numbers_[at / rails_]);
    const std::string rail = rails_ > 1 ? fmt::format("/rail{}", at % rails_) : "";
    return fmt::format("{}{}/{}", leaf, rail, direction(first_leaf_uplink_));
  }
  if (link < first_override_) {
    return fmt::format("pod{}/{}", pod_numbers_[number(first_pod_uplink_)],
                       direction(first_pod_uplink_));
  }
  if (link < first_staging_) {
    const auto& [nodes, duplex] = overrides_[number(first_override_)];
    const bool up = link == duplex.up;
    return fmt::format("{}/to/{}", node_name({up ? nodes.first : nodes.second}),
                       node_name({up ? nodes.second : nodes.first}));
  }
  const auto& [staging, device] = staged(link);
  const NodeId node = node_of_[device];
  return fmt::format("{}/gpu{}/{}/{}", node_name(node),
                     device.value - nodes_[node].first_device.value, staging->name,
                     direction(first_staging_));
}

LinkId Topology::find(std::string_view name) const {
  const auto named = [&](LinkId link) { return name_of(link) == name; };
  std::call_once(by_name_->filled, [&] {
    for (const NodeId node : nodes_.ids()) by_name_->nodes.emplace_back(node_name(node), node);
    std::sort(by_name_->nodes.begin(), by_name_->nodes.end());
  });
  const auto& nodes = by_name_->nodes;
  // A node's own name may have slashes.
  for (std::size_t end = name.find('/'); end != name.npos; end = name.find('/', end + 1)) {
    const std::string_view owner = name.substr(0, end);
    for (auto at = std::lower_bound(
             nodes.begin(), nodes.end(), owner,
             [](const auto&entry, std::string_view wanted) { return entry.first < wanted; });
         at != nodes.end() && at->first == owner; ++at) {
      const PlacedNode& node = nodes_[at->second];
      const std::vector<LocalLink>& links = kinds_[node.kind].links;
      const auto own = std::find_if(links.begin(), links.end(), [&](const LocalLink& link) {
        return link.name == name.substr(end);
      });
      if (own != links.end()) {
        return {node.first_link.value + static_cast<std::int32_t>(own - links.begin())};
      }
      for (const LinkId link : staging_links(at->second)) {
        if (named(link)) return link;
      }
      for (const auto& [pair, duplex] : overrides_) {
        if (at->second.value != pair.first && at->second.value != pair.second) continue;
        for (const LinkId link : {duplex.up, duplex.down}) {
          if (named(link)) return link;
        }
      }
    }
  }
  const auto numbered = [&](std::string_view kind, const std::vector<int>& numbers, LinkId first,
                            LinkId end, std::size_t switches) -> LinkId {
    int number = 0;
    if (!name.starts_with(kind)) return {};
    std::from_chars(name.data() + kind.size(), name.data() + name.size(), number);
    const auto at = std::lower_bound(numbers.begin(), numbers.end(), number);
    if (at == numbers.end() || *at != number) return {};
    const auto links = static_cast<std::int32_t>(2 * switches);
    LinkId link{first.value + links * static_cast<std::int32_t>(at - numbers.begin())};
    for (std::int32_t i = 0; i < links && link < end; ++i, ++link) {
      if (named(link)) return link;
    }
    return {};
  };
  const LinkId leaf =
      numbered("leaf", leaf_numbers_, first_leaf_uplink_, first_pod_uplink_, rails_);
  return leaf.valid() ? leaf : numbered("pod", pod_numbers_, first_pod_uplink_, first_override_, 1);
}

std::vector<LinkId> Topology::links_of(NodeId node) const {
  const PlacedNode& at = nodes_[node];
  const NodeKind& kind = kinds_[at.kind];
  std::vector<LinkId> links;
  for (std::size_t i = 0; i < kind.links.size(); ++i) {
    links.push_back({at.first_link.value + static_cast<std::int32_t>(i)});
  }
  const std::vector<LinkId> staging = staging_links(node);
  links.insert(links.end(), staging.begin(), staging.end());
  return links;
}

std::vector<LinkId> Topology::staging_links(NodeId node) const {
  const PlacedNode& at = nodes_[node];
  std::vector<LinkId> links;
  for (const Staging& staging : staging_) {
    for (std::size_t i = 0; i < kinds_[at.kind].ports.size(); ++i) {
      const Duplex& own = staging.of_device[{at.first_device.value + static_cast<std::int32_t>(i)}];
      if (own.up.valid()) links.insert(links.end(), {own.up, own.down});
    }
  }
  return links;
}

const Topology::Duplex* Topology::staging(const End& end, DeviceId device, const End& peer) const {
  const int pair = staging_of_[as_size(end.port.vendor * vendors_ + peer.port.vendor)];
  return pair < 0 ? nullptr : &staging_[pair].of_device[device];
}

const Topology::Duplex* Topology::override_of(NodeId a, NodeId b) const {
  if (overrides_.empty()) return nullptr;
  const std::pair<int, int> key = std::minmax(a.value, b.value);
  const auto found =
      std::lower_bound(overrides_.begin(), overrides_.end(), key,
                       [](const auto& entry, const auto& wanted) { return entry.first < wanted; });
  return found != overrides_.end() && found->first == key ? &found->second : nullptr;
}

std::size_t Topology::leaf_switch(const End& end) const {
  return end.node.leaf * rails_ + as_size(end.port.nic) % rails_;
}

Topology::Duplex Topology::leaf_uplink(std::size_t leaf_switch) const {
  const int up = first_leaf_uplink_.value + 2 * static_cast<int>(leaf_switch);
  return {{up}, {up + 1}};
}

Topology::Duplex Topology::pod_uplink(std::size_t pod) const {
  const int up = first_pod_uplink_.value + 2 * static_cast<int>(pod);
  return {{up}, {up + 1}};
}

/// Calls take(link, its kind) for each link from the one NIC to the other.
template <class F>
void Topology::walk_network(const End& from, const End& to, F&& take_kind) const {
  const auto take = [&](LinkId link) { take_kind(link, links_.kind_of_[link]); };
  take_kind(from.link(from.port.nic_port.up), from.kind_of(from.port.nic_port.up));
  const std::size_t leaf = leaf_switch(from);
  const std::size_t other = leaf_switch(to);
  const bool across = leaf != other && has_leaf_uplinks_;
  if (across) take(leaf_uplink(leaf).up);
  const std::size_t pod = pod_of_leaf_[from.node.leaf];
  const std::size_t other_pod = pod_of_leaf_[to.node.leaf];
  const bool over_core = pod != other_pod && has_pod_uplinks_;
  if (over_core) take(pod_uplink(pod).up);
  if (const Duplex* pair = override_of(from.id, to.id)) {
    take(from.id < to.id ? pair->up : pair->down);
  }
  if (over_core) take(pod_uplink(other_pod).down);
  if (across) take(leaf_uplink(other).down);
  take_kind(to.link(to.port.nic_port.down), to.kind_of(to.port.nic_port.down));
}

/// Calls take(link, its kind) for each link from source to destination, in order.
template <class F>
PathClass Topology::walk(DeviceId source, const End& from, DeviceId destination, const End& to,
                         F&& take_kind) const {
  if (source == destination) return PathClass::same_device;
  const auto take = [&](const End& end, Local link) {
    take_kind(end.link(link), end.kind_of(link));
  };
  const auto maybe = [&](const End& end, Local link) {
    if (link >= 0) take(end, link);
  };
  const auto stage = [&](LinkId link) { take_kind(link, links_.kind_of_[link]); };
  const Duplex* out = staging(from, source, to);
  const bool same_node = from.id == to.id;
  if (same_node && out == nullptr) {
    for (const Domain& a : from.port.domains) {
      for (const Domain& b : to.port.domains) {
        if (a.index != b.index) continue;
        if (!a.to.empty()) {
          take(from, a.to[as_size(destination.value - to.node.first_device.value)]);
          return a.kind;
        }
        take(from, a.port.up);
        if (b.port.down != a.port.up) take(to, b.port.down);
        return a.kind;
      }
    }
    ORRERY_CHECK(from.port.slot.up >= 0 && to.port.slot.up >= 0,
                 "devices {} and {} of a node share no domain and not both have a PCIe slot",
                 source.value, destination.value);
    const bool crosses = from.port.pcie_switch != to.port.pcie_switch;
    take(from, from.port.slot.up);
    if (crosses) maybe(from, from.port.uplink.up);
    if (crosses) maybe(to, to.port.uplink.down);
    take(to, to.port.slot.down);
    return PathClass::pcie;
  }
  maybe(from, from.port.slot.up);
  maybe(from, from.port.uplink.up);
  if (out != nullptr) stage(out->up);
  if (!same_node) {
    ORRERY_CHECK(from.port.nic >= 0 && to.port.nic >= 0,
                 "devices {} and {} are not both behind a NIC", source.value, destination.value);
    walk_network(from, to, take_kind);
  }
  if (out != nullptr) stage(staging(to, destination, from)->down);
  maybe(to, to.port.uplink.down);
  maybe(to, to.port.slot.down);
  return out != nullptr ? PathClass::host_staged : PathClass::network;
}

void Topology::route(DeviceId source, DeviceId destination, std::vector<LinkId>& links) const {
  walk(source, end_of(source), destination, end_of(destination),
       [&](LinkId link, std::uint32_t) { links.push_back(link); });
}

void Topology::host_links(DeviceId device, bool up, std::vector<LinkId>& links) const {
  const End end = end_of(device);
  const Local slot = up ? end.port.slot.up : end.port.slot.down;
  const Local uplink = up ? end.port.uplink.up : end.port.uplink.down;
  if (up && slot >= 0) links.push_back(end.link(slot));
  if (uplink >= 0) links.push_back(end.link(uplink));
  if (!up && slot >= 0) links.push_back(end.link(slot));
}

void Topology::nic_link(DeviceId device, bool up, std::vector<LinkId>& links) const {
  const End end = end_of(device);
  const LocalDuplex& nic = end.port.nic_port;
  if (end.port.nic >= 0) links.push_back(end.link(up ? nic.up : nic.down));
}

void Topology::network_links(DeviceId source, DeviceId destination,
                             std::vector<LinkId>& links) const {
  const End from = end_of(source);
  const End to = end_of(destination);
  ORRERY_CHECK(from.port.nic >= 0 && to.port.nic >= 0,
               "devices {} and {} are not both behind a NIC", source.value, destination.value);
  walk_network(from, to, [&](LinkId link, std::uint32_t) { links.push_back(link); });
}

/// Between its ends, without links.
Path Topology::blank_path(const End& source, const End& destination) {
  Path path{{std::numeric_limits<double>::infinity()}, {}, PathClass::same_device};
  path.source_node = source.id;
  path.source_nic = source.port.nic;
  path.destination_node = destination.id;
  return path;
}

Path Topology::calibrated_path(DeviceId source, DeviceId destination) const {
  const End from = end_of(source);
  const End to = end_of(destination);
  Path path = blank_path(from, to);
  BytesPerSecond narrowest{std::numeric_limits<double>::infinity()};
  path.kind = walk(source, from, destination, to, [&](LinkId, std::uint32_t kind) {
    path.bandwidth = std::min(path.bandwidth, links_.kinds_[kind].bandwidth);
    path.latency += links_.kinds_[kind].latency;
    path.mesh = path.mesh || links_.kinds_[kind].mesh;
    const BytesPerSecond declared = declared_[kind];
    if (declared > narrowest || (declared == narrowest && path.calibration != nullptr)) return;
    narrowest = declared;
    path.calibration = calibration_of_[kind];
  });
  if (path.calibration != nullptr && !path.calibration->segments.empty()) {
    path.latency = path.calibration->wire_latency;
  }
  return path;
}

Path Topology::path(DeviceId source, DeviceId destination) const {
  if (calibrated()) return calibrated_path(source, destination);
  const End from = end_of(source);
  const End to = end_of(destination);
  Path path = blank_path(from, to);
  path.kind = walk(source, from, destination, to, [&](LinkId, std::uint32_t kind) {
    const Link& link = links_.kinds_[kind];
    path.bandwidth = std::min(path.bandwidth, link.bandwidth);
    path.latency += link.latency;
    path.mesh = path.mesh || link.mesh;
  });
  return path;
}

bool Topology::share_nic(DeviceId a, DeviceId b) const {
  const End first = end_of(a);
  const End second = end_of(b);
  return first.id == second.id && first.port.nic >= 0 && first.port.nic == second.port.nic;
}

}  // namespace orrery::models
