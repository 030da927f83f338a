#include "sim/replay/device_renaming.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>
#include <string_view>

namespace orrery::sim {
namespace {

/// All of a node but its name and leaf.
std::string description(const models::Node& node) {
  std::string text;
  const auto list = [&](const std::vector<int>& values) {
    for (const int value : values) text += fmt::format("{},", value);
    text += ';';
  };
  list(node.gpu_types);
  for (const models::LinkDomain& domain : node.domains) {
    text += "domain " + domain.link + ' ';
    list(domain.members);
  }
  for (const models::PcieSwitch& pcie : node.pcie) {
    text += "pcie " + pcie.link + ' ' + pcie.uplink + ' ';
    list(pcie.members);
  }
  for (const models::Nic& nic : node.nics) {
    text += "nic " + nic.link + ' ';
    list(nic.members);
  }
  text += fmt::format("{} {} {} {} {}", node.nvme_read.value, node.nvme_write.value,
                      node.host_memory.value, node.host_memory_bandwidth.value, node.region);
  return text;
}

template <class T, class F>
bool all_equal(const std::vector<T>& items, F same) {
  return std::all_of(items.begin(), items.end(),
                     [&](const T& item) { return same(items.front(), item); });
}

}  // namespace

DeviceRenaming::DeviceRenaming(const models::Cluster& cluster, const models::Topology& topology,
                               bool ignore_leaves)
    : cluster_(cluster), topology_(topology) {
  std::map<int, LeafId> leaves;
  std::map<std::string, ShapeId> shapes;
  int first = 0;
  for (const models::Node& node : cluster.nodes) {
    first_.push_back(first);
    const LeafId next{static_cast<std::int32_t>(leaves.size())};
    leaf_.push_back(leaves.try_emplace(ignore_leaves ? 0 : node.leaf, next).first->second);
    const auto [shape, is_new] = shapes.try_emplace(description(node), shapes_.next_id());
    if (is_new) shapes_.push_back(make_shape(node, first));
    shape_.push_back(shape->second);
    first += static_cast<int>(node.gpu_types.size());
  }
  nodes_.assign(leaves.size(), IdVector<ShapeId, std::vector<NodeId>>(shapes_.size()));
  for (const NodeId node : leaf_.ids()) nodes_[leaf_[node]][shape_[node]].push_back(node);
  for (const models::PairOverride& pair : cluster.overrides) {
    overridden_.push_back(pair.a);
    overridden_.push_back(pair.b);
  }
}

/// Whether groups of one kind have equal classes, and GPUs are of one type.
bool DeviceRenaming::even(const models::Node& node) {
  const std::size_t size = node.gpu_types.size();
  if (!all_equal(node.gpu_types, [](int a, int b) { return a == b; })) return false;
  if (!node.pcie.empty() && !all_equal(node.pcie, [](const auto& a, const auto& b) {
        return a.link == b.link && a.uplink == b.uplink;
      })) {
    return false;
  }
  if (!node.nics.empty() &&
      !all_equal(node.nics, [](const auto& a, const auto& b) { return a.link == b.link; })) {
    return false;
  }
  // Domains: each holds all GPUs, or they are one another's like and do not overlap.
  std::vector<models::LinkDomain> partial;
  std::set<int> seen;
  for (const models::LinkDomain& domain : node.domains) {
    if (domain.members.size() == size) continue;
    for (const int member : domain.members) {
      if (!seen.insert(member).second) return false;
    }
    partial.push_back(domain);
  }
  if (partial.empty()) return true;
  return seen.size() == size && all_equal(partial, [](const auto& a, const auto& b) {
           return a.link == b.link && a.members.size() == b.members.size();
         });
}

DeviceRenaming::Shape DeviceRenaming::make_shape(const models::Node& node, int first_device) const {
  Shape shape;
  const std::size_t size = node.gpu_types.size();
  if (size == 0 || !even(node)) return shape;
  std::vector<std::vector<int>> levels(3, std::vector<int>(size, 0));
  for (std::size_t p = 0; p < size; ++p) {
    const DeviceId device{first_device + static_cast<int>(p)};
    for (std::size_t d = 0; d < node.domains.size(); ++d) {
      const std::vector<int>& members = node.domains[d].members;
      if (members.size() < size &&
          std::count(members.begin(), members.end(), static_cast<int>(p))) {
        levels[0][p] = static_cast<int>(d);
      }
    }
    levels[1][p] = topology_.pcie_switch_of(device);
    levels[2][p] = topology_.nic_of(device);
  }
  const auto groups = [](const std::vector<int>& level) {
    return std::set<int>(level.begin(), level.end()).size();
  };
  std::erase_if(levels, [&](const auto& level) { return groups(level) == 1; });
  std::stable_sort(levels.begin(), levels.end(),
                   [&](const auto& a, const auto& b) { return groups(a) < groups(b); });
  std::vector<int> single(size);
  std::iota(single.begin(), single.end(), 0);
  levels.push_back(single);

  // Each group lies in one of the level above, and all have the same number of groups below.
  std::vector<int> above(size, 0);
  int groups_above = 1;
  for (const std::vector<int>& level : levels) {
    std::map<int, int> parent, number;
    std::map<int, std::set<int>> children;
    for (std::size_t p = 0; p < size; ++p) {
      if (parent.try_emplace(level[p], above[p]).first->second != above[p]) return shape;
      children[above[p]].insert(level[p]);
    }
    const std::size_t fan = children.begin()->second.size();
    for (const auto& [of, inside] : children) {
      if (inside.size() != fan) return shape;
      for (const int group : inside) {
        const int next = static_cast<int>(number.size());
        number.try_emplace(group, next);
      }
    }
    std::vector<int> numbered(size);
    for (std::size_t p = 0; p < size; ++p) numbered[p] = number.at(level[p]);
    shape.group.push_back(numbered);
    shape.fan.push_back(static_cast<int>(fan));
    above = std::move(numbered);
    groups_above *= static_cast<int>(fan);
  }
  shape.sorted.resize(size);
  for (std::size_t p = 0; p < size; ++p) {
    shape.sorted[above[p]] = static_cast<int>(p);
  }
  shape.regular = groups_above == static_cast<int>(size);
  return shape;
}

/// Groups are numbered again, level by level, in order of appearance.
const std::vector<int>& DeviceRenaming::positions(const Shape& shape,
                                                  const std::vector<int>& order) const {
  if (!shape.regular) return order;
  const auto [known, is_new] = shape.known.try_emplace(order);
  std::vector<int>& result = known->second;
  if (!is_new) return result;
  std::vector<std::map<int, int>> number(shape.group.size()), used(shape.group.size());
  for (const int position : order) {
    int at = 0;
    for (std::size_t level = 0; level < shape.group.size(); ++level) {
      const int group = shape.group[level][position];
      const auto [entry, is_new] = number[level].try_emplace(group, 0);
      if (is_new) entry->second = at * shape.fan[level] + used[level][at]++;
      at = entry->second;
    }
    result.push_back(shape.sorted[at]);
  }
  return result;
}

/// The nodes of the leaf whose link that is; none: it is another link.
std::vector<NodeId> DeviceRenaming::below(const std::string& link) const {
  constexpr std::string_view kLeaf = "leaf";
  std::vector<NodeId> nodes;
  int leaf = 0;
  if (!link.starts_with(kLeaf)) return nodes;
  std::from_chars(link.data() + kLeaf.size(), link.data() + link.size(), leaf);
  if (!link.starts_with(fmt::format("{}{}/", kLeaf, leaf))) return nodes;
  for (const NodeId node : shape_.ids()) {
    if (cluster_.node(node).leaf == leaf) nodes.push_back(node);
  }
  return nodes;
}

/// Degraded links that can matter to the nodes in use; those nodes, or all of their leaf, are
/// fixed.
models::DegradedLinks DeviceRenaming::fix_degraded(const models::DegradedLinks& degraded,
                                                   const IdVector<NodeId, int>& number,
                                                   IdVector<NodeId, bool>& fixed) const {
  models::DegradedLinks kept;
  for (const auto& [link, factor] : degraded) {
    std::vector<NodeId> nodes;
    const LinkId id = topology_.find(link);
    const NodeId owner = id.valid() ? topology_.node_of(id) : NodeId{};
    if (owner.valid()) nodes.push_back(owner);
    if (nodes.empty()) nodes = below(link);
    const bool matters = nodes.empty() || std::any_of(nodes.begin(), nodes.end(), [&](NodeId node) {
                           return number[node] >= 0;
                         });
    if (!matters) continue;
    kept.emplace_back(link, factor);
    for (const NodeId node : nodes) fixed[node] = true;
  }
  return kept;
}

/// The leaf of the cluster for each leaf in use; empty if there is none for one of them. Largest
/// demands first, each to the smallest leaf that has enough.
IdVector<DeviceRenaming::UsedLeafId, DeviceRenaming::LeafId> DeviceRenaming::match_leaves(
    const std::vector<UsedNode>& used, int leaves, const IdVector<NodeId, bool>& fixed) const {
  IdVector<LeafId, IdVector<ShapeId, int>> have(nodes_.size(),
                                                IdVector<ShapeId, int>(shapes_.size(), 0));
  for (const LeafId leaf : nodes_.ids()) {
    for (const ShapeId shape : shapes_.ids()) {
      for (const NodeId node : nodes_[leaf][shape]) have[leaf][shape] += fixed[node] ? 0 : 1;
    }
  }
  struct Demand {
    UsedLeafId leaf;
    LeafId forced;
    int total = 0;
    IdVector<ShapeId, int> by_shape;
  };
  std::vector<Demand> demands;
  for (int i = 0; i < leaves; ++i) {
    demands.push_back({{i}, {}, 0, IdVector<ShapeId, int>(shapes_.size(), 0)});
  }
  // Leaves of different pods are not alike.
  const bool stay = cluster_.fabric.leaves_per_pod > 0;
  for (const UsedNode& node : used) {
    Demand& demand = demands[node.leaf.index()];
    if (node.fixed || stay) demand.forced = leaf_[node.node];
    if (!node.fixed) {
      ++demand.total;
      ++demand.by_shape[shape_[node.node]];
    }
  }
  std::stable_sort(demands.begin(), demands.end(), [](const Demand& a, const Demand& b) {
    return a.forced.valid() != b.forced.valid() ? a.forced.valid() : a.total > b.total;
  });
  IdVector<UsedLeafId, LeafId> result(demands.size());
  IdVector<LeafId, bool> taken(nodes_.size(), false);
  for (const Demand& demand : demands) {
    LeafId best = demand.forced;
    int best_size = 0;
    for (const LeafId leaf : nodes_.ids()) {
      if (demand.forced.valid() || taken[leaf]) continue;
      bool enough = true;
      for (const ShapeId s : shapes_.ids()) enough &= demand.by_shape[s] <= have[leaf][s];
      const int size = std::accumulate(have[leaf].begin(), have[leaf].end(), 0);
      if (!enough || (best.valid() && size >= best_size)) continue;
      best = leaf;
      best_size = size;
    }
    if (!best.valid()) return {};
    taken[best] = true;
    result[demand.leaf] = best;
  }
  return result;
}

DeviceRenaming::Names DeviceRenaming::names(std::span<const DeviceId> order,
                                            const models::DegradedLinks& degraded) const {
  Names result{IdVector<DeviceId, DeviceId>(cluster_.devices.size()), {}};
  IdVector<NodeId, bool> fixed(cluster_.nodes.size(), false);
  IdVector<DeviceId, bool> seen(cluster_.devices.size(), false);
  for (const NodeId node : overridden_) fixed[node] = true;
  std::vector<UsedNode> used;
  IdVector<NodeId, int> number(cluster_.nodes.size(), -1);
  IdVector<LeafId, UsedLeafId> used_leaf(nodes_.size());
  int leaves = 0;
  for (const DeviceId id : order) {
    if (seen[id]) continue;
    seen[id] = true;
    const models::Device& device = cluster_.device(id);
    int& at = number[device.node];
    if (at < 0) {
      at = static_cast<int>(used.size());
      UsedLeafId& leaf = used_leaf[leaf_[device.node]];
      if (!leaf.valid()) leaf = {leaves++};
      used.push_back({device.node, leaf, false, {}});
    }
    used[at].positions.push_back(device.position);
  }
  result.degraded_links = fix_degraded(degraded, number, fixed);
  for (UsedNode& node : used) node.fixed = fixed[node.node];
  const IdVector<UsedLeafId, LeafId> match = match_leaves(used, leaves, fixed);
  std::map<std::pair<LeafId, ShapeId>, std::size_t> next;  // To the next node.
  for (const UsedNode& node : used) {
    const ShapeId shape = shape_[node.node];
    NodeId to = node.node;
    const bool keep = node.fixed || match.empty();
    if (!keep) {
      const LeafId leaf = match[node.leaf];
      const std::vector<NodeId>& choice = nodes_[leaf][shape];
      std::size_t& at = next[{leaf, shape}];
      while (fixed[choice[at]]) ++at;
      to = choice[at++];
    }
    const std::vector<int>& places =
        keep ? node.positions : positions(shapes_[shape], node.positions);
    for (std::size_t i = 0; i < places.size(); ++i) {
      result.to[DeviceId{first_[node.node] + node.positions[i]}] = {first_[to] + places[i]};
    }
  }
  return result;
}

DeviceRenaming::Names DeviceRenaming::unchanged(std::span<const DeviceId> order,
                                                const models::DegradedLinks& degraded) const {
  Names names{IdVector<DeviceId, DeviceId>(cluster_.devices.size()), degraded};
  for (const DeviceId device : order) names.to[device] = device;
  return names;
}

ir::Plan renamed(const ir::Plan& plan, const IdVector<DeviceId, DeviceId>& to) {
  ir::Plan result = plan;
  result.predicted.reset();
  result.planner.clear();
  result.cluster_hash.clear();
  result.workload_hash.clear();
  for (ir::Pipeline& pipeline : result.pipelines) {
    for (ir::Stage& stage : pipeline.stages) {
      for (ir::Segment& segment : stage.segments) {
        for (ir::Group& group : segment.groups) {
          for (DeviceId& device : group.devices) device = to[device];
        }
      }
    }
  }
  return result;
}

std::vector<DeviceId> devices_in_order(const ir::Plan& plan) {
  std::vector<DeviceId> order;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        for (const ir::Group& group : segment.groups) {
          order.insert(order.end(), group.devices.begin(), group.devices.end());
        }
      }
    }
  }
  return order;
}

}  // namespace orrery::sim
