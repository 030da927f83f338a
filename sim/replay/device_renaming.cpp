#include "sim/replay/device_renaming.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

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
  std::map<int, int> leaves;
  std::map<std::string, int> shapes;
  int first = 0;
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    const models::Node& node = cluster.nodes[n];
    first_.push_back(first);
    const int leaf = ignore_leaves ? 0 : node.leaf;
    leaf_.push_back(leaves.try_emplace(leaf, static_cast<int>(leaves.size())).first->second);
    const auto [shape, is_new] =
        shapes.try_emplace(description(node), static_cast<int>(shapes.size()));
    if (is_new) shapes_.push_back(make_shape(node, first));
    shape_of_.push_back(shape->second);
    first += static_cast<int>(node.gpu_types.size());
  }
  nodes_.assign(leaves.size(), std::vector<std::vector<NodeId>>(shapes_.size()));
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    nodes_[static_cast<std::size_t>(leaf_[n])][static_cast<std::size_t>(shape_of_[n])].push_back(
        {static_cast<int>(n)});
  }
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
    shape.sorted[static_cast<std::size_t>(above[p])] = static_cast<int>(p);
  }
  shape.regular = groups_above == static_cast<int>(size);
  return shape;
}

/// Groups are numbered again, level by level, in order of appearance.
std::vector<int> DeviceRenaming::positions(const Shape& shape,
                                           const std::vector<int>& order) const {
  if (!shape.regular) return order;
  std::vector<std::map<int, int>> number(shape.group.size()), used(shape.group.size());
  std::vector<int> result;
  for (const int position : order) {
    int at = 0;
    for (std::size_t level = 0; level < shape.group.size(); ++level) {
      const int group = shape.group[level][static_cast<std::size_t>(position)];
      const auto [entry, is_new] = number[level].try_emplace(group, 0);
      if (is_new) entry->second = at * shape.fan[level] + used[level][at]++;
      at = entry->second;
    }
    result.push_back(shape.sorted[static_cast<std::size_t>(at)]);
  }
  return result;
}

/// Degraded links that can matter to the nodes in use; those nodes, or all of their leaf, are
/// fixed.
models::DegradedLinks DeviceRenaming::fix_degraded(const models::DegradedLinks& degraded,
                                                   const std::vector<int>& number,
                                                   std::vector<bool>& fixed) const {
  models::DegradedLinks kept;
  if (!degraded.empty() && node_of_link_.empty()) {
    for (std::size_t n = 0; n < cluster_.nodes.size(); ++n) {
      const NodeId node{static_cast<int>(n)};
      for (const LinkId link : topology_.links_of(node)) {
        node_of_link_.emplace(topology_.links()[link].name, node);
      }
    }
  }
  for (const auto& [link, factor] : degraded) {
    std::vector<NodeId> nodes;
    const auto found = node_of_link_.find(link);
    if (found != node_of_link_.end()) nodes.push_back(found->second);
    for (std::size_t n = 0; n < cluster_.nodes.size() && nodes.empty(); ++n) {
      if (!link.starts_with(fmt::format("leaf{}/", cluster_.nodes[n].leaf))) continue;
      for (std::size_t k = n; k < cluster_.nodes.size(); ++k) {
        if (cluster_.nodes[k].leaf == cluster_.nodes[n].leaf) {
          nodes.push_back({static_cast<int>(k)});
        }
      }
    }
    const bool matters = nodes.empty() || std::any_of(nodes.begin(), nodes.end(), [&](NodeId node) {
                           return number[node.index()] >= 0;
                         });
    if (!matters) continue;
    kept.emplace_back(link, factor);
    for (const NodeId node : nodes) fixed[node.index()] = true;
  }
  return kept;
}

/// The leaf of the cluster for each leaf in use; empty if there is none for one of them. Largest
/// demands first, each to the smallest leaf that has enough.
std::vector<int> DeviceRenaming::match_leaves(const std::vector<UsedNode>& used, int leaves,
                                              const std::vector<bool>& fixed) const {
  const std::size_t count = nodes_.size(), shapes = shapes_.size();
  std::vector<std::vector<int>> have(count, std::vector<int>(shapes, 0));
  for (std::size_t leaf = 0; leaf < count; ++leaf) {
    for (std::size_t s = 0; s < shapes; ++s) {
      for (const NodeId node : nodes_[leaf][s]) have[leaf][s] += fixed[node.index()] ? 0 : 1;
    }
  }
  struct Demand {
    int leaf = 0, forced = -1, total = 0;
    std::vector<int> by_shape;
  };
  std::vector<Demand> demands;
  for (int i = 0; i < leaves; ++i) demands.push_back({i, -1, 0, std::vector<int>(shapes, 0)});
  for (const UsedNode& node : used) {
    Demand& demand = demands[static_cast<std::size_t>(node.leaf)];
    if (node.fixed) {
      demand.forced = leaf_of(node.node);
    } else {
      ++demand.total;
      ++demand.by_shape[static_cast<std::size_t>(shape_of_[node.node.index()])];
    }
  }
  std::stable_sort(demands.begin(), demands.end(), [](const Demand& a, const Demand& b) {
    return (a.forced >= 0) != (b.forced >= 0) ? a.forced >= 0 : a.total > b.total;
  });
  std::vector<int> result(static_cast<std::size_t>(leaves), -1);
  std::vector<bool> taken(count, false);
  for (const Demand& demand : demands) {
    int best = demand.forced, best_size = 0;
    for (std::size_t leaf = 0; leaf < count && demand.forced < 0; ++leaf) {
      if (taken[leaf]) continue;
      bool enough = true;
      for (std::size_t s = 0; s < shapes; ++s) enough &= demand.by_shape[s] <= have[leaf][s];
      const int size = std::accumulate(have[leaf].begin(), have[leaf].end(), 0);
      if (!enough || (best >= 0 && size >= best_size)) continue;
      best = static_cast<int>(leaf);
      best_size = size;
    }
    if (best < 0) return {};
    taken[static_cast<std::size_t>(best)] = true;
    result[static_cast<std::size_t>(demand.leaf)] = best;
  }
  return result;
}

DeviceRenaming::Names DeviceRenaming::names(std::span<const DeviceId> order,
                                            const models::DegradedLinks& degraded) const {
  Names result{std::vector<DeviceId>(cluster_.devices.size()), {}};
  std::vector<bool> fixed(cluster_.nodes.size(), false), seen(cluster_.devices.size(), false);
  for (const NodeId node : overridden_) fixed[node.index()] = true;
  std::vector<UsedNode> used;
  std::vector<int> number(cluster_.nodes.size(), -1), leaf(nodes_.size(), -1);
  int leaves = 0;
  for (const DeviceId id : order) {
    if (seen[id.index()]) continue;
    seen[id.index()] = true;
    const models::Device& device = cluster_.device(id);
    int& at = number[device.node.index()];
    if (at < 0) {
      at = static_cast<int>(used.size());
      int& in = leaf[static_cast<std::size_t>(leaf_of(device.node))];
      if (in < 0) in = leaves++;
      used.push_back({device.node, in, false, {}});
    }
    used[static_cast<std::size_t>(at)].positions.push_back(device.position);
  }
  result.degraded_links = fix_degraded(degraded, number, fixed);
  for (UsedNode& node : used) node.fixed = fixed[node.node.index()];
  const std::vector<int> match = match_leaves(used, leaves, fixed);
  std::map<std::pair<int, int>, std::size_t> next;  // Leaf and shape to the next node.
  for (const UsedNode& node : used) {
    const int shape = shape_of_[node.node.index()];
    NodeId to = node.node;
    const bool keep = node.fixed || match.empty();
    if (!keep) {
      const int on = match[static_cast<std::size_t>(node.leaf)];
      const std::vector<NodeId>& choice =
          nodes_[static_cast<std::size_t>(on)][static_cast<std::size_t>(shape)];
      std::size_t& at = next[{on, shape}];
      while (fixed[choice[at].index()]) ++at;
      to = choice[at++];
    }
    const std::vector<int> places =
        keep ? node.positions : positions(shapes_[static_cast<std::size_t>(shape)], node.positions);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const int from = first_[node.node.index()] + node.positions[i];
      result.to[static_cast<std::size_t>(from)] = {first_[to.index()] + places[i]};
    }
  }
  return result;
}

ir::Plan renamed(const ir::Plan& plan, const std::vector<DeviceId>& to) {
  ir::Plan result = plan;
  result.predicted.reset();
  result.planner.clear();
  result.cluster_hash.clear();
  result.workload_hash.clear();
  for (ir::Pipeline& pipeline : result.pipelines) {
    for (ir::Stage& stage : pipeline.stages) {
      for (ir::Segment& segment : stage.segments) {
        for (ir::Group& group : segment.groups) {
          for (DeviceId& device : group.devices) device = to[device.index()];
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
