/// Which nodes of a cluster are interchangeable, and the canonical one among the sets of devices
/// that are equal up to a renaming of such nodes. Private to the kit.
#pragma once
#include <cstddef>
#include <vector>

#include "models/base/ids.h"
#include "models/ir/plan.h"
#include "models/spec/cluster.h"

namespace orrery::planners {

/// Equal but for their names and their leaves: GPUs, links, storage, region.
bool same_kind(const models::Node& a, const models::Node& b);

/// By node: its first device. The others follow it (Cluster::devices).
std::vector<int> first_devices(const models::Cluster& cluster);

/// Device -> device, by id; -1 outside of what it is for.
using DeviceRenaming = std::vector<int>;

/// The plan with its devices renamed.
ir::Plan renamed(const ir::Plan& plan, const DeviceRenaming& to);

class NodeClasses {
 public:
  explicit NodeClasses(const models::Cluster& cluster);

  struct Canonical {
    std::vector<DeviceId> devices;  ///< Ascending: the representative of all equal sets.
    DeviceRenaming back;            ///< From those devices to the given ones.
  };
  /// Nodes are interchangeable when they are of one kind on one leaf and no pair override names
  /// them; leaves when they have equally many nodes of each kind; positions of a node when no link
  /// tells them apart. The canonical set has, among interchangeable ones, the fullest leaves and
  /// nodes and the lowest positions first.
  Canonical canonical(const std::vector<DeviceId>& devices) const;

 private:
  struct Leaf {
    /// (kind, its nodes ascending), by kind.
    std::vector<std::pair<int, std::vector<int>>> groups;
    int kind = 0;  ///< Of leaves.
  };
  const models::Cluster& cluster_;
  std::vector<Leaf> leaves_;
  int leaf_kinds_ = 0;
  std::vector<std::vector<int>>
      equal_positions_;  ///< By kind of node, position: first equal position.
};

}  // namespace orrery::planners
