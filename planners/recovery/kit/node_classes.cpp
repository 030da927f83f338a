#include "planners/recovery/kit/node_classes.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace orrery::planners {
namespace {

bool same(const models::LinkDomain& a, const models::LinkDomain& b) {
  return a.members == b.members && a.link == b.link;
}
bool same(const models::PcieSwitch& a, const models::PcieSwitch& b) {
  return a.members == b.members && a.link == b.link && a.uplink == b.uplink;
}
bool same(const models::Nic& a, const models::Nic& b) {
  return a.members == b.members && a.link == b.link;
}
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const T& x, const T& y) { return same(x, y); });
}

using MemberSets = std::vector<std::tuple<std::vector<int>, std::string, std::string>>;

/// By NIC: the positions that use it, as models/spec/cluster.h spreads them.
std::vector<std::vector<int>> nic_users(const models::Node& node) {
  std::map<std::vector<int>, std::vector<int>> users;  // By the NICs to choose from.
  for (int i = 0; i < static_cast<int>(node.gpu_types.size()); ++i) {
    std::vector<int> choice;
    for (int n = 0; n < static_cast<int>(node.nics.size()); ++n) {
      const std::vector<int>& may = node.nics[n].members;
      if (may.empty() || std::find(may.begin(), may.end(), i) != may.end()) choice.push_back(n);
    }
    if (!choice.empty()) users[choice].push_back(i);
  }
  std::vector<std::vector<int>> result(node.nics.size());
  for (const auto& [choice, positions] : users) {
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const int nic = choice[i * choice.size() / positions.size()];
      result[nic].push_back(positions[i]);
    }
  }
  return result;
}

/// Who shares domains, PCIe switches and NICs, with two positions exchanged.
std::array<MemberSets, 3> swapped(const models::Node& node, int a, int b) {
  std::array<MemberSets, 3> all;
  const auto add = [&](MemberSets& sets, std::vector<int> members, std::string link,
                       std::string uplink) {
    for (int& member : members) member = member == a ? b : member == b ? a : member;
    std::sort(members.begin(), members.end());
    sets.emplace_back(std::move(members), std::move(link), std::move(uplink));
  };
  for (const auto& set : node.domains) add(all[0], set.members, set.link, "");
  for (const auto& set : node.pcie) add(all[1], set.members, set.link, set.uplink);
  const auto users = nic_users(node);
  for (std::size_t n = 0; n < users.size(); ++n) add(all[2], users[n], node.nics[n].link, "");
  for (MemberSets& sets : all) std::sort(sets.begin(), sets.end());
  return all;
}

/// By position: the lowest one that it can be exchanged with, all others staying.
std::vector<int> equal_positions(const models::Node& node) {
  const auto as_it_is = swapped(node, 0, 0);
  std::vector<int> lowest;
  for (int i = 0; i < static_cast<int>(node.gpu_types.size()); ++i) {
    int other = 0;
    while (other < i &&
           (node.gpu_types[other] != node.gpu_types[i] || swapped(node, other, i) != as_it_is)) {
      ++other;
    }
    lowest.push_back(other);
  }
  return lowest;
}

/// A node of a set: which of its devices belong to the set, by position, those that can be
/// exchanged as the first of their kind; sorted with the fullest first.
struct PresentNode {
  std::vector<int> positions;
  std::vector<int> given;  ///< Before they changed places.
  int node = 0;
  bool operator<(const PresentNode& other) const {
    return std::tuple(other.positions.size(), positions, node) <
           std::tuple(positions.size(), other.positions, other.node);
  }
};

/// The devices at `given` (ascending), each moved to the first free position equal to its own.
PresentNode present_node(const std::vector<int>& lowest, const std::vector<int>& given, int node) {
  std::vector<std::pair<int, int>> moved;
  std::vector<int> next(lowest.size(), 0);  // By class: where to look for the next position.
  for (const int position : given) {
    const int of = lowest[position];
    int& to = next[of];
    while (lowest[to] != of) ++to;
    moved.emplace_back(to++, position);
  }
  std::sort(moved.begin(), moved.end());
  PresentNode result;
  result.node = node;
  for (const auto& [to, position] : moved) {
    result.positions.push_back(to);
    result.given.push_back(position);
  }
  return result;
}

/// A leaf of a set: of each of its groups, the nodes with any device.
struct PresentLeaf {
  std::vector<std::vector<PresentNode>> groups;
  std::size_t devices = 0;
  int leaf = 0;
  /// Without the nodes' numbers: what decides whether two leaves look alike.
  std::vector<std::vector<std::vector<int>>> look() const {
    std::vector<std::vector<std::vector<int>>> out;
    for (const auto& group : groups) {
      auto& at = out.emplace_back();
      for (const PresentNode& node : group) at.push_back(node.positions);
    }
    return out;
  }
};

}  // namespace

bool same_kind(const models::Node& a, const models::Node& b) {
  return a.gpu_types == b.gpu_types && same(a.domains, b.domains) && same(a.pcie, b.pcie) &&
         same(a.nics, b.nics) && a.nvme_read == b.nvme_read && a.nvme_write == b.nvme_write &&
         a.nvme_capacity == b.nvme_capacity && a.host_memory == b.host_memory &&
         a.host_memory_bandwidth == b.host_memory_bandwidth && a.region == b.region;
}

std::vector<int> first_devices(const models::Cluster& cluster) {
  std::vector<int> first(cluster.nodes.size(), 0);
  for (const models::Device& device : cluster.devices) {
    if (device.position == 0) first[device.node.index()] = device.id.value;
  }
  return first;
}

ir::Plan renamed(const ir::Plan& plan, const DeviceRenaming& to) {
  ir::Plan out = plan;
  for (ir::Pipeline& pipeline : out.pipelines) {
    for (ir::Stage& stage : pipeline.stages) {
      for (ir::Segment& segment : stage.segments) {
        for (ir::Group& group : segment.groups) {
          for (DeviceId& device : group.devices) device = {to[device.index()]};
        }
      }
    }
  }
  return out;
}

NodeClasses::NodeClasses(const models::Cluster& cluster) : cluster_(cluster) {
  std::set<int> overridden;
  for (const models::PairOverride& pair : cluster.overrides) {
    overridden.insert({pair.a.value, pair.b.value});
  }
  std::vector<int> examples;  // By kind: its first node.
  std::map<int, std::map<int, std::vector<int>>> nodes_of_leaf;
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    const auto node = static_cast<int>(n);
    const auto known = std::find_if(examples.begin(), examples.end(), [&](int example) {
      return !overridden.contains(node) && !overridden.contains(example) &&
             same_kind(cluster.nodes[example], cluster.nodes[n]);
    });
    const auto kind = static_cast<int>(known - examples.begin());
    if (known == examples.end()) {
      examples.push_back(node);
      equal_positions_.push_back(equal_positions(cluster.nodes[n]));
    }
    nodes_of_leaf[cluster.nodes[n].leaf][kind].push_back(node);
  }
  std::map<std::pair<int, std::vector<std::pair<int, std::size_t>>>, int> kinds;
  for (const auto& [leaf, groups] : nodes_of_leaf) {
    std::vector<std::pair<int, std::size_t>> counts;
    for (const auto& [kind, nodes] : groups) counts.emplace_back(kind, nodes.size());
    Leaf& at = leaves_.emplace_back();
    at.groups.assign(groups.begin(), groups.end());
    at.kind = kinds
                  .try_emplace({cluster.fabric.pod_of(leaf), std::move(counts)},
                               static_cast<int>(kinds.size()))
                  .first->second;
  }
  leaf_kinds_ = static_cast<int>(kinds.size());
}

NodeClasses::Canonical NodeClasses::canonical(const std::vector<DeviceId>& devices) const {
  std::vector<std::vector<int>> positions(cluster_.nodes.size());
  const std::vector<int> first = first_devices(cluster_);
  for (const DeviceId id : devices) {
    const models::Device& device = cluster_.device(id);
    positions[device.node.index()].push_back(device.position);
  }
  std::vector<std::vector<PresentLeaf>> by_kind(leaf_kinds_);
  for (std::size_t l = 0; l < leaves_.size(); ++l) {
    PresentLeaf present;
    present.leaf = static_cast<int>(l);
    for (const auto& [kind, nodes] : leaves_[l].groups) {
      auto& group = present.groups.emplace_back();
      for (const int node : nodes) {
        const std::vector<int>& there = positions[node];
        if (there.empty()) continue;
        group.push_back(present_node(equal_positions_[kind], there, node));
        present.devices += there.size();
      }
      std::sort(group.begin(), group.end());
    }
    by_kind[leaves_[l].kind].push_back(std::move(present));
  }
  Canonical out;
  out.back.assign(cluster_.size(), -1);
  for (std::vector<PresentLeaf>& present : by_kind) {
    std::vector<int> targets;  // Leaves of this kind, ascending.
    for (const PresentLeaf& leaf : present) targets.push_back(leaf.leaf);
    std::sort(present.begin(), present.end(), [](const PresentLeaf& a, const PresentLeaf& b) {
      if (a.devices != b.devices) return a.devices > b.devices;
      const auto left = a.look();
      const auto right = b.look();
      return left != right ? left < right : a.leaf < b.leaf;
    });
    for (std::size_t l = 0; l < present.size(); ++l) {
      const Leaf& target = leaves_[targets[l]];
      for (std::size_t g = 0; g < target.groups.size(); ++g) {
        const std::vector<PresentNode>& group = present[l].groups[g];
        for (std::size_t n = 0; n < group.size(); ++n) {
          const int to = first[target.groups[g].second[n]];
          const int from = first[group[n].node];
          for (std::size_t i = 0; i < group[n].positions.size(); ++i) {
            const int device = to + group[n].positions[i];
            out.devices.push_back({device});
            out.back[device] = from + group[n].given[i];
          }
        }
      }
    }
  }
  std::sort(out.devices.begin(), out.devices.end());
  return out;
}

}  // namespace orrery::planners
