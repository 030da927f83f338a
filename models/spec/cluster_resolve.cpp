/// From the cluster file to the cluster: counts expanded, names resolved, structure checked.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "models/base/ids.h"
#include "models/spec/cluster_file.h"
#include "models/spec/topology.h"

namespace orrery::models {
namespace {

constexpr std::size_t kMostDevices = 1 << 20;
constexpr std::size_t kMostGpusOfNode = 1 << 12;
constexpr std::size_t kMostPairs = 1 << 22;  ///< Of nodes, in overrides.

template <class T>
std::vector<std::string> names_of(const std::map<std::string, T>& map) {
  std::vector<std::string> names;
  for (const auto& entry : map) names.push_back(entry.first);
  return names;
}

/// All of a library's entries with those of the file laid over them.
template <class T>
std::map<std::string, T> merged(const std::map<std::string, T>& library,
                                const std::map<std::string, LocalEntry<T>>& local, const char* what,
                                config::Diagnostics& diagnostics) {
  std::map<std::string, T> all = library;
  for (const auto& [name, entry] : local) {
    T base;
    if (entry.base) {
      const auto found = library.find(entry.base->value);
      if (found == library.end()) {
        diagnostics.add(entry.base->at, fmt::format("unknown {} '{}'", what, entry.base->value),
                        config::suggest(entry.base->value, names_of(library), "known"));
      } else {
        base = found->second;
      }
    }
    all[name] = overlay(std::move(base), entry);
    all[name].name = name;
  }
  return all;
}

class Resolver {
 public:
  Resolver(const ClusterFile& file, const Library& library, config::Diagnostics& diagnostics)
      : file_(file),
        diagnostics_(diagnostics),
        gpus_(merged(library.gpus, file.gpus, "GPU type", diagnostics)),
        links_(merged(library.links, file.links, "link class", diagnostics)) {}

  Cluster run() {
    const std::size_t before = diagnostics_.problems().size();
    cluster_.name = file_.name;
    cluster_.fabric = file_.fabric;
    cluster_.storage = file_.storage;
    for (const NodeEntry& entry : file_.nodes) add_nodes(entry);
    if (cluster_.nodes.size() > 1) {
      for (const NodeEntry& entry : file_.nodes) check_network(entry);
      check_rails();
    }
    for (const StagingEntry& entry : file_.host_staging) add_staging(entry);
    if (diagnostics_.problems().size() != before) return cluster_;
    for (const OverrideEntry& entry : file_.overrides) add_override(entry);
    if (diagnostics_.problems().size() == before) seal(cluster_);
    return cluster_;
  }

 private:
  void fail(const config::Position& at, std::string what, std::string hint = "") {
    diagnostics_.add(at, std::move(what), std::move(hint));
  }

  /// Index into Cluster::gpu_types, which gets the type when it is first used.
  std::optional<int> gpu(const LocatedName& name) {
    const auto used = gpu_index_.find(name.value);
    if (used != gpu_index_.end()) return used->second;
    const auto known = gpus_.find(name.value);
    if (known == gpus_.end()) {
      fail(name.at, fmt::format("unknown GPU type '{}'", name.value),
           config::suggest(name.value, names_of(gpus_), "GPU types"));
      return std::nullopt;
    }
    cluster_.gpu_types.push_back(known->second);
    return gpu_index_[name.value] = static_cast<int>(cluster_.gpu_types.size()) - 1;
  }

  /// Name of the class that is used: that of the file, or one of its own when numbers are replaced.
  std::string link(const LocatedName& name, std::optional<BytesPerSecond> bandwidth = {},
                   std::optional<Seconds> latency = {}) {
    const auto known = links_.find(name.value);
    if (known == links_.end()) {
      fail(name.at, fmt::format("unknown link class '{}'", name.value),
           config::suggest(name.value, names_of(links_), "link classes"));
      return "";
    }
    LinkClass used = known->second;
    if (bandwidth) {
      used.bandwidth = *bandwidth;
      used.name += fmt::format("@{}", config::to_text(*bandwidth));
    }
    if (latency) {
      used.latency = *latency;
      used.name += fmt::format("@{}", config::to_text(*latency));
    }
    cluster_.links[used.name] = used;
    return used.name;
  }

  /// The class, which must not be a mesh.
  template <class Located>
  std::string no_mesh(const Located& given, std::string name) {
    const auto used = cluster_.links.find(name);
    if (used != cluster_.links.end() && used->second.mesh) {
      fail(given.at, fmt::format("'{}' is a mesh", given.value),
           "only GPUs of a domain are a mesh");
    }
    return name;
  }

  std::vector<int> members(const LocatedMembers& given, int gpus) {
    std::vector<int> out = given.value;
    if (out.empty()) {
      out.resize(gpus);
      std::iota(out.begin(), out.end(), 0);
    }
    std::vector<int> sorted = out;
    std::sort(sorted.begin(), sorted.end());
    if (sorted.front() < 0 || sorted.back() >= gpus) {
      const int wrong = sorted.front() < 0 ? sorted.front() : sorted.back();
      fail(given.at, fmt::format("member {} of a node with {} GPUs", wrong, gpus),
           fmt::format("members are 0 to {}", gpus - 1));
      return {};
    }
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) {
      fail(given.at, fmt::format("member {} is named twice", *twice));
      return {};
    }
    return out;
  }

  Node make_node(const NodeEntry& entry) {
    Node node;
    for (const GpuEntry& each : entry.gpus) {
      const int type = gpu(each.type).value_or(0);
      node.gpu_types.insert(node.gpu_types.end(), each.count, type);
    }
    const int gpus = static_cast<int>(node.gpu_types.size());
    for (const DomainEntry& each : entry.domains) {
      node.domains.push_back(
          {members(each.members, gpus), link(each.link, each.bandwidth, each.latency)});
    }
    std::vector<bool> has_slot(node.gpu_types.size(), false);
    for (const PcieEntry& each : entry.pcie) {
      PcieSwitch pcie{members(each.members, gpus), no_mesh(each.link, link(each.link)), ""};
      if (!each.uplink.value.empty()) pcie.uplink = no_mesh(each.uplink, link(each.uplink));
      for (const int member : pcie.members) {
        if (has_slot[member]) {
          fail(each.members.at.line > 0 ? each.members.at : each.link.at,
               fmt::format("GPU {} is behind two PCIe switches", member),
               "give each switch its `members`");
          break;
        }
        has_slot[member] = true;
      }
      node.pcie.push_back(std::move(pcie));
    }
    for (const NicEntry& each : entry.nics) {
      const std::vector<int> own = members(each.members, gpus);
      const Nic nic{no_mesh(each.link, link(each.link, each.bandwidth, each.latency)), own};
      if (!own.empty() && each.count > std::ssize(own)) {
        fail(each.link.at, fmt::format("{} NICs for {} GPUs", each.count, own.size()),
             "a GPU uses one NIC: give one of the bandwidth that a GPU sees");
      }
      node.nics.insert(node.nics.end(), each.count, nic);
    }
    node.nvme_read = entry.nvme.read;
    node.nvme_write = entry.nvme.write;
    node.nvme_capacity = entry.nvme.capacity;
    node.host_memory = entry.host_memory.capacity;
    node.host_memory_bandwidth = entry.host_memory.bandwidth;
    node.region = entry.region;
    check_inside(entry, node, has_slot);
    return node;
  }

  /// Every two GPUs need a common domain or PCIe slots.
  void check_inside(const NodeEntry& entry, const Node& node, const std::vector<bool>& has_slot) {
    const std::size_t gpus = node.gpu_types.size();
    std::vector<std::vector<bool>> in_domain(gpus, std::vector<bool>(node.domains.size()));
    for (std::size_t d = 0; d < node.domains.size(); ++d) {
      for (const int m : node.domains[d].members) in_domain[m][d] = true;
    }
    for (std::size_t a = 0; a < gpus; ++a) {
      for (std::size_t b = a + 1; b < gpus; ++b) {
        bool joined = has_slot[a] && has_slot[b];
        for (std::size_t d = 0; d < node.domains.size(); ++d) {
          joined = joined || (in_domain[a][d] && in_domain[b][d]);
        }
        if (joined) continue;
        return fail(
            entry.name.at,
            fmt::format("no path joins GPUs {} and {} of node '{}'", a, b, entry.name.value),
            "give both a domain, or `pcie`");
      }
    }
  }

  /// A switch of a leaf needs a NIC.
  void check_rails() {
    std::size_t most = 0;
    const NodeEntry* widest = nullptr;
    for (const NodeEntry& entry : file_.nodes) {
      std::size_t nics = 0;
      for (const NicEntry& nic : entry.nics) nics += nic.count;
      if (widest == nullptr || nics > most) widest = &entry;
      most = std::max(most, nics);
    }
    const std::size_t rails = file_.fabric.rails;
    if (most == 0 || rails <= most) return;
    fail(widest->name.at,
         fmt::format("no node has more NICs than '{}', which has {}, and the fabric has {} rails",
                     widest->name.value, most, rails),
         fmt::format("rails are 1 to {}", most));
  }

  void check_network(const NodeEntry& entry) {
    const std::vector<NodeId>& ids = by_name_[entry.name.value];
    if (ids.empty()) return;  // its name is a problem already
    const Node& node = cluster_.node(ids.front());
    for (std::size_t i = 0; i < node.gpu_types.size(); ++i) {
      const bool reached = std::any_of(node.nics.begin(), node.nics.end(), [&](const Nic& nic) {
        return std::count(nic.members.begin(), nic.members.end(), static_cast<int>(i)) > 0;
      });
      if (reached) continue;
      return fail(entry.name.at,
                  fmt::format("GPU {} of node '{}' has no NIC, and the cluster has {} nodes", i,
                              entry.name.value, cluster_.nodes.size()),
                  "add `nics`");
    }
  }

  void add_nodes(const NodeEntry& entry) {
    std::size_t gpus = 0;
    for (const GpuEntry& each : entry.gpus) gpus += each.count;
    if (gpus > kMostGpusOfNode) {
      return fail(entry.name.at, fmt::format("node '{}' has {} GPUs, at most {} are possible",
                                             entry.name.value, gpus, kMostGpusOfNode));
    }
    Node node = make_node(entry);
    devices_ += node.gpu_types.size() * as_size(entry.count);
    if (devices_ > kMostDevices) {
      return fail(entry.name.at, fmt::format("more than {} GPUs", kMostDevices));
    }
    std::vector<NodeId> all;
    for (int i = 0; i < entry.count; ++i) {
      node.name = entry.count == 1 ? entry.name.value : fmt::format("{}-{}", entry.name.value, i);
      node.leaf = entry.leaf + (entry.nodes_per_leaf > 0 ? i / entry.nodes_per_leaf : 0);
      const NodeId id{static_cast<int>(cluster_.nodes.size())};
      if (by_name_.contains(node.name)) {
        return fail(entry.name.at, fmt::format("duplicate node name '{}'", node.name),
                    "give each entry of `nodes` a name of its own");
      }
      by_name_[node.name] = {id};
      all.push_back(id);
      cluster_.nodes.push_back(node);
    }
    if (entry.count > 1 && !by_name_.try_emplace(entry.name.value, all).second) {
      fail(entry.name.at, fmt::format("duplicate node name '{}'", entry.name.value));
    }
  }

  void add_staging(const StagingEntry& entry) {
    std::vector<std::string> vendors;
    for (const GpuType& type : cluster_.gpu_types) {
      if (std::count(vendors.begin(), vendors.end(), type.vendor) == 0) {
        vendors.push_back(type.vendor);
      }
    }
    for (const LocatedName& name : entry.vendors.value) {
      if (std::count(vendors.begin(), vendors.end(), name.value) > 0) continue;
      fail(name.at, fmt::format("no GPU of the cluster is of vendor '{}'", name.value),
           config::suggest(name.value, vendors, "vendors"));
    }
    cluster_.host_staging.push_back({entry.vendors.value[0].value, entry.vendors.value[1].value,
                                     entry.bandwidth, entry.latency});
  }

  void add_override(const OverrideEntry& entry) {
    std::vector<std::vector<NodeId>> ends;
    for (const LocatedName& name : entry.between.value) {
      const auto found = by_name_.find(name.value);
      if (found != by_name_.end()) {
        ends.push_back(found->second);
      } else {
        fail(name.at, fmt::format("unknown node '{}'", name.value),
             config::suggest(name.value, names_of(by_name_), "nodes"));
      }
    }
    if (ends.size() != 2) return;
    if (ends[0].size() == 1 && ends[0] == ends[1]) {
      return fail(entry.between.at, "an override between a node and itself");
    }
    if (cluster_.overrides.size() + ends[0].size() * ends[1].size() > kMostPairs) {
      return fail(entry.between.at,
                  fmt::format("overrides of more than {} pairs of nodes", kMostPairs),
                  "give the nodes a link class with these numbers");
    }
    bool reported = false;
    for (const NodeId a : ends[0]) {
      for (const NodeId b : ends[1]) {
        if (a == b || (ends[0] == ends[1] && b < a)) continue;
        cluster_.overrides.push_back({a, b, entry.bandwidth, entry.latency.value});
        const Seconds least = network_latency(cluster_, a, b);
        // A latency that is meant to be equal may differ in its last digit.
        if (reported || !entry.latency.value || *entry.latency.value >= least * (1 - 1e-9))
          continue;
        fail(entry.latency.at,
             fmt::format(
                 "latency is less than the {:.6g} us of NICs and fabric between '{}' and '{}'",
                 least.value * 1e6, cluster_.node(a).name, cluster_.node(b).name),
             "give these nodes a link class with less latency");
        reported = true;
      }
    }
  }

  const ClusterFile& file_;
  config::Diagnostics& diagnostics_;
  std::map<std::string, GpuType> gpus_;
  std::map<std::string, LinkClass> links_;
  std::map<std::string, int> gpu_index_;
  std::map<std::string, std::vector<NodeId>> by_name_;  ///< Nodes, and entries with a count.
  std::size_t devices_ = 0;
  Cluster cluster_;
};

}  // namespace

Cluster resolve(const ClusterFile& file, const Library& library, config::Diagnostics& diagnostics) {
  return Resolver(file, library, diagnostics).run();
}

}  // namespace orrery::models
