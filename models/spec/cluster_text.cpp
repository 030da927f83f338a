#include "models/spec/cluster_text.h"

#include <fmt/format.h>

#include "models/config/document.h"
#include "models/config/sparse.h"
#include "models/spec/cluster_file.h"

namespace orrery::models {
namespace {

constexpr const char* kInCode = "given in code";  ///< The source of a type that has none.

/// Whether `members` are all GPUs of the node, in order: what files leave out.
LocatedMembers members_of(const std::vector<int>& members, std::size_t gpus) {
  LocatedMembers out;
  bool all = members.size() == gpus;
  for (std::size_t i = 0; all && i < gpus; ++i) all = members[i] == static_cast<int>(i);
  if (!all) out.value = members;
  return out;
}

NodeEntry entry_of(const Node& node, const Cluster& cluster) {
  NodeEntry entry;
  entry.name.value = node.name;
  const std::size_t gpus = node.gpu_types.size();
  for (const int type : node.gpu_types) {
    const std::string& name = cluster.gpu_types[type].name;
    if (entry.gpus.empty() || entry.gpus.back().type.value != name) {
      entry.gpus.push_back({{name, {}}, 0});
    }
    ++entry.gpus.back().count;
  }
  for (const LinkDomain& domain : node.domains) {
    entry.domains.push_back({{domain.link, {}}, members_of(domain.members, gpus), {}, {}});
  }
  for (const PcieSwitch& pcie : node.pcie) {
    entry.pcie.push_back({{pcie.link, {}}, {pcie.uplink, {}}, members_of(pcie.members, gpus)});
  }
  for (const Nic& nic : node.nics) {
    const LocatedMembers members =
        nic.members.empty() ? LocatedMembers{} : members_of(nic.members, gpus);
    // No entry has more NICs than GPUs, as readers ask.
    const std::size_t users = members.value.empty() ? gpus : members.value.size();
    if (!entry.nics.empty() && entry.nics.back().link.value == nic.link &&
        entry.nics.back().members.value == members.value &&
        as_size(entry.nics.back().count) < users) {
      ++entry.nics.back().count;
    } else {
      entry.nics.push_back({{nic.link, {}}, 1, members, {}, {}});
    }
  }
  entry.nvme = {node.nvme_read, node.nvme_write, node.nvme_capacity};
  entry.host_memory = {node.host_memory, node.host_memory_bandwidth};
  entry.region = node.region;
  entry.leaf = node.leaf;
  return entry;
}

/// "name-3" as {"name", 3}; -1 without a number.
std::pair<std::string, int> counted(const std::string& name) {
  const std::size_t dash = name.rfind('-');
  config::TextError error;
  if (dash == std::string::npos) return {name, -1};
  const auto number = config::parse_integer(name.substr(dash + 1), 0, 1 << 16, error);
  if (!number || std::to_string(*number) != name.substr(dash + 1)) return {name, -1};
  return {name.substr(0, dash), static_cast<int>(*number)};
}

/// Everything but name and leaf switch.
std::string rest_of(NodeEntry entry) {
  entry.name.value.clear();
  entry.leaf = 0;
  return config::dump(entry);
}

/// Nodes NAME-0, NAME-1, ... that are equal and hang on leaves in order as one entry.
std::vector<NodeEntry> folded(const std::vector<NodeEntry>& nodes) {
  std::vector<NodeEntry> out;
  for (std::size_t first = 0; first < nodes.size();) {
    NodeEntry entry = nodes[first];
    const auto [base, number] = counted(entry.name.value);
    const std::string rest = rest_of(entry);
    std::size_t past = first + 1;
    while (number == 0 && past < nodes.size() &&
           counted(nodes[past].name.value) == std::pair{base, static_cast<int>(past - first)} &&
           rest_of(nodes[past]) == rest) {
      ++past;
    }
    const int count = static_cast<int>(past - first);
    int on_first = 1;  // Nodes of the first leaf.
    while (on_first < count && nodes[first + on_first].leaf == entry.leaf) ++on_first;
    const int each = on_first < count ? on_first : 0;
    bool regular = count > 1;
    for (int i = 0; i < count && regular; ++i) {
      regular = nodes[first + i].leaf == entry.leaf + (each > 0 ? i / each : 0);
    }
    if (!regular) {
      out.push_back(entry);
      ++first;
      continue;
    }
    entry.name.value = base;
    entry.count = count;
    entry.nodes_per_leaf = each;
    out.push_back(entry);
    first = past;
  }
  return out;
}

template <class T>
LocalEntry<T> local(T value) {
  if (value.source.empty()) value.source = kInCode;
  return {std::nullopt, std::move(value), {}};
}

ClusterFile file_of(const Cluster& cluster) {
  ClusterFile file;
  file.name = cluster.name;
  std::vector<NodeEntry> nodes;
  for (const Node& node : cluster.nodes) nodes.push_back(entry_of(node, cluster));
  file.nodes = folded(nodes);
  file.fabric = cluster.fabric;
  file.storage = cluster.storage;
  const auto name = [&](NodeId id) { return LocatedName{cluster.node(id).name, {}}; };
  for (const PairOverride& pair : cluster.overrides) {
    file.overrides.push_back(
        {{{name(pair.a), name(pair.b)}, {}}, pair.bandwidth, {pair.latency, {}}});
  }
  for (const HostStaging& staging : cluster.host_staging) {
    file.host_staging.push_back({{{{staging.vendor_a, {}}, {staging.vendor_b, {}}}, {}},
                                 staging.bandwidth,
                                 staging.latency});
  }
  for (const GpuType& gpu : cluster.gpu_types) file.gpus[gpu.name] = local(gpu);
  for (const auto& [link_name, link] : cluster.links) file.links[link_name] = local(link);
  return file;
}

/// Without settings that have their defaults, but for types, of which no part may be missing.
config::Value tree_of(const Cluster& cluster) {
  const ClusterFile file = file_of(cluster);
  const config::Value all = config::to_value(file);
  config::Value tree = config::sparse(file, {});
  for (config::Value::Entry& part : tree.entries) {
    if (part.key != "gpus" && part.key != "links") continue;
    part.value = *all.find(part.key);
    for (config::Value::Entry& type : part.value.entries) {
      std::erase_if(type.value.entries, [](const auto& entry) { return entry.value.is_null(); });
    }
  }
  return tree;
}

/// Indices that file_of() follows.
bool indices_fit(const Cluster& cluster, config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  const auto fail = [&](std::string path, std::string what, std::string hint) {
    diagnostics.add({std::move(path), 0, 0}, std::move(what), std::move(hint));
  };
  const int types = static_cast<int>(cluster.gpu_types.size());
  const int nodes = static_cast<int>(cluster.nodes.size());
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    for (const int type : cluster.nodes[n].gpu_types) {
      if (type >= 0 && type < types) continue;
      fail(fmt::format("nodes[{}].gpu_types", n), fmt::format("no GPU type {}", type),
           fmt::format("the cluster has {} in gpu_types", types));
      break;
    }
  }
  for (std::size_t i = 0; i < cluster.overrides.size(); ++i) {
    for (const NodeId node : {cluster.overrides[i].a, cluster.overrides[i].b}) {
      if (node.value >= 0 && node.value < nodes) continue;
      fail(fmt::format("overrides[{}]", i), fmt::format("no node {}", node.value),
           fmt::format("the cluster has {} nodes", nodes));
    }
  }
  for (const auto& [name, link] : cluster.links) {
    if (name == link.name) continue;
    fail(fmt::format("links['{}']", name), fmt::format("its name is '{}'", link.name), "");
  }
  return diagnostics.problems().size() == before;
}

}  // namespace

const config::TypeNode& cluster_file_type() {
  static const config::TypeNode kType = [] {
    ClusterFile prototype;
    return config::type_of(config::detail::slot(prototype));
  }();
  return kType;
}

Cluster read_cluster(const config::Value& tree, const Library& library,
                     config::Diagnostics& diagnostics) {
  ClusterFile file;
  if (!read_cluster_file(tree, file, diagnostics)) return {};
  return resolve(file, library, diagnostics);
}

std::string dump_cluster(const Cluster& cluster) { return config::to_yaml(tree_of(cluster)); }

void check_cluster(const Cluster& cluster, config::Diagnostics& diagnostics) {
  if (!indices_fit(cluster, diagnostics)) return;
  read_cluster(tree_of(cluster), {}, diagnostics);
}

}  // namespace orrery::models
