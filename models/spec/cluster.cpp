#include "models/spec/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <tuple>

#include "models/base/hash.h"
#include "models/ir/names.h"

namespace orrery::models {
namespace {

/// Writes fields so that different clusters give different texts: strings carry their length,
/// doubles all their digits.
class Canonical {
 public:
  void text(const std::string& s) { put("{}:{};", s.size(), s); }
  void number(double x) { put("{};", x); }
  void integer(int i) { put("{};", i); }
  template <int S, int B, int F, int D, int J>
  void number(Quantity<S, B, F, D, J> q) {
    number(q.value);
  }
  template <class T>
  void maybe(const std::optional<T>& value) {
    integer(value ? 1 : 0);
    if (value) number(*value);
  }
  void list(const std::vector<int>& values) {
    integer(static_cast<int>(values.size()));
    for (const int value : values) integer(value);
  }
  template <class T, class Write>
  void each(const T& items, Write write) {
    integer(static_cast<int>(items.size()));
    for (const auto& item : items) write(item);
  }
  void append(std::string_view written) {
    buffer_.append(written.data(), written.data() + written.size());
  }
  std::string_view view() const { return {buffer_.data(), buffer_.size()}; }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Args>(args)...);
  }
  fmt::memory_buffer buffer_;
};

void write(Canonical& out, const GpuType& gpu) {
  out.text(gpu.name);
  out.text(gpu.vendor);
  out.each(gpu.peak, [&](const auto& entry) {
    out.text(ir::name_of(entry.first));
    out.number(entry.second);
  });
  out.number(gpu.memory);
  out.number(gpu.memory_bandwidth);
  out.number(gpu.efficiency);
  out.number(gpu.memory_efficiency);
  out.number(gpu.launch);
  out.maybe(gpu.price);
  out.maybe(gpu.spot_price);
}

void write(Canonical& out, const LinkClass& link) {
  out.text(link.name);
  out.number(link.bandwidth);
  out.number(link.latency);
  out.number(link.efficiency);
  out.integer(link.shared ? 1 : link.mesh ? 2 : 0);
}

/// Everything but its name and leaf.
void write_rest(Canonical& out, const Node& node) {
  out.list(node.gpu_types);
  out.each(node.domains, [&](const LinkDomain& domain) {
    out.list(domain.members);
    out.text(domain.link);
  });
  out.each(node.pcie, [&](const PcieSwitch& pcie) {
    out.list(pcie.members);
    out.text(pcie.link);
    out.text(pcie.uplink);
  });
  out.each(node.nics, [&](const Nic& nic) {
    out.text(nic.link);
    out.list(nic.members);
  });
  out.number(node.nvme_read);
  out.number(node.nvme_write);
  out.number(node.nvme_capacity);
  out.number(node.host_memory);
  out.number(node.host_memory_bandwidth);
  out.text(node.region);
}

bool equal_rest(const Node& a, const Node& b) {
  const auto rest = [](const Node& node) {
    return std::tie(node.gpu_types, node.domains, node.pcie, node.nics, node.nvme_read,
                    node.nvme_write, node.nvme_capacity, node.host_memory,
                    node.host_memory_bandwidth, node.region);
  };
  return rest(a) == rest(b);
}

/// Most nodes are like the one before.
void write(Canonical& out, const std::vector<Node>& nodes) {
  const Node* before = nullptr;
  std::string rest;
  out.each(nodes, [&](const Node& node) {
    if (before == nullptr || !equal_rest(*before, node)) {
      Canonical text;
      write_rest(text, node);
      rest = text.view();
    }
    before = &node;
    out.text(node.name);
    out.append(rest);
    out.integer(node.leaf);
  });
}

/// What two levels with one leaf switch each do without.
void write_levels(Canonical& out, const Fabric& fabric) {
  if (fabric.leaf_oversubscription > 0) {
    out.text("leaf_oversubscription");
    out.number(fabric.leaf_oversubscription);
  }
  if (fabric.rails != 1) {
    out.text("rails");
    out.integer(fabric.rails);
  }
  if (fabric.leaves_per_pod == 0) return;
  out.text("pods");
  out.integer(fabric.leaves_per_pod);
  out.number(fabric.spine_uplink);
  out.number(fabric.spine_oversubscription);
  out.number(fabric.core_latency);
}

void write(Canonical& out, const Cluster& cluster) {
  out.each(cluster.gpu_types, [&](const GpuType& gpu) { write(out, gpu); });
  out.each(cluster.links, [&](const auto& entry) { write(out, entry.second); });
  write(out, cluster.nodes);
  out.number(cluster.fabric.leaf_uplink);
  out.number(cluster.fabric.leaf_latency);
  out.number(cluster.fabric.spine_latency);
  write_levels(out, cluster.fabric);
  out.each(cluster.overrides, [&](const PairOverride& pair) {
    out.integer(pair.a.value);
    out.integer(pair.b.value);
    out.maybe(pair.bandwidth);
    out.maybe(pair.latency);
  });
  out.each(cluster.host_staging, [&](const HostStaging& staging) {
    out.text(staging.vendor_a);
    out.text(staging.vendor_b);
    out.number(staging.bandwidth);
    out.number(staging.latency);
  });
  out.integer(cluster.storage ? 1 : 0);
  if (cluster.storage) {
    out.number(cluster.storage->bandwidth);
    out.integer(static_cast<int>(cluster.storage->scope));
    out.number(cluster.storage->latency);
  }
}

}  // namespace

std::vector<std::pair<BandwidthScope, const char*>> enum_names(BandwidthScope) {
  return {{BandwidthScope::shared, "shared"}, {BandwidthScope::per_node, "per_node"}};
}

std::vector<DeviceId> Cluster::devices_of(NodeId node) const {
  std::vector<DeviceId> ids;  // They follow one another.
  auto device = std::lower_bound(devices.begin(), devices.end(), node,
                                 [](const Device& d, NodeId n) { return d.node < n; });
  for (; device != devices.end() && device->node == node; ++device) ids.push_back(device->id);
  return ids;
}

void seal(Cluster& cluster) {
  cluster.devices.clear();
  std::size_t devices = 0;
  for (const Node& node : cluster.nodes) devices += node.gpu_types.size();
  cluster.devices.reserve(devices);
  for (std::size_t node = 0; node < cluster.nodes.size(); ++node) {
    const std::vector<int>& types = cluster.nodes[node].gpu_types;
    for (std::size_t position = 0; position < types.size(); ++position) {
      cluster.devices.push_back({DeviceId{cluster.size()}, NodeId{static_cast<int>(node)},
                                 static_cast<int>(position), types[position]});
    }
  }
  Canonical text;
  write(text, cluster);
  cluster.hash = content_hash(text.view());
  Canonical power;
  bool known = false;
  power.each(cluster.gpu_types, [&](const GpuType& gpu) {
    known = known || gpu.power;
    power.text(gpu.name);
    power.maybe(gpu.power);
  });
  cluster.power_hash = known ? content_hash(power.view()) : "";
}

}  // namespace orrery::models
