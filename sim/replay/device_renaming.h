/// Which devices are interchangeable: gives plans and transfers that differ only by a renaming of
/// such devices the same names, so that they are simulated once. Private to sim/replay.
///
/// Nodes are interchangeable when they are built alike and are in the same region; leaves, when
/// they hold enough such nodes; positions of a node, when all its GPUs are equal and its NVLink
/// domains, PCIe switches and NICs are nested evenly. Nodes of pair overrides, and nodes whose
/// links or leaf are degraded, keep their names. A renaming preserves which devices share a node, a
/// leaf, a domain, a switch, a NIC.
#pragma once
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/base/id_vector.h"
#include "models/interfaces/transfer_timer.h"
#include "models/ir/plan.h"
#include "models/spec/cluster.h"
#include "models/spec/topology.h"

namespace orrery::sim {

class DeviceRenaming {
 public:
  /// Keeps references. `ignore_leaves`: all nodes count as being on one leaf.
  DeviceRenaming(const models::Cluster& cluster, const models::Topology& topology,
                 bool ignore_leaves);

  struct Names {
    IdVector<DeviceId, DeviceId> to;       ///< Invalid where `order` does not name the device.
    models::DegradedLinks degraded_links;  ///< Those that can matter to these devices.
  };
  /// Depends on the first appearances in `order` only. Names stay as they are if the leaves cannot
  /// be matched.
  Names names(std::span<const DeviceId> order, const models::DegradedLinks& degraded) const;
  /// The same, with every device under its own name.
  Names unchanged(std::span<const DeviceId> order, const models::DegradedLinks& degraded) const;
  NodeId node_of(DeviceId device) const { return cluster_.device(device).node; }
  /// Nodes of one number are built alike.
  int kind_of(NodeId node) const { return shape_[node].value; }

 private:
  using LeafId = Id<struct LeafTag>;
  using ShapeId = Id<struct ShapeTag>;
  using UsedLeafId = Id<struct UsedLeafTag>;  ///< Leaves in use, in order of appearance.
  /// Positions of a node in nested groups. Level 0 is the coarsest.
  struct Shape {
    bool regular = false;
    std::vector<std::vector<int>> group;  ///< By level and position, numbered along the node.
    std::vector<int> fan;                 ///< Groups of each level in one of the level above.
    std::vector<int> sorted;              ///< Positions in the order of their groups.
    /// Answers of positions(): most nodes of a plan are used alike.
    mutable std::map<std::vector<int>, std::vector<int>> known;
  };
  struct UsedNode {
    NodeId node;
    UsedLeafId leaf;
    bool fixed = false;
    std::vector<int> positions;  ///< In order of appearance.
  };
  Shape make_shape(const models::Node& node, int first_device) const;
  static bool even(const models::Node& node);
  std::vector<NodeId> below(const std::string& link) const;
  models::DegradedLinks fix_degraded(const models::DegradedLinks& degraded,
                                     const IdVector<NodeId, int>& number,
                                     IdVector<NodeId, bool>& fixed) const;
  IdVector<UsedLeafId, LeafId> match_leaves(const std::vector<UsedNode>& used, int leaves,
                                            const IdVector<NodeId, bool>& fixed) const;
  const std::vector<int>& positions(const Shape& shape, const std::vector<int>& order) const;

  const models::Cluster& cluster_;
  const models::Topology& topology_;
  IdVector<NodeId, int> first_;      ///< Id of its first device.
  IdVector<NodeId, LeafId> leaf_;    ///< Numbered from 0, whatever the cluster calls them.
  IdVector<NodeId, ShapeId> shape_;  ///< Nodes of one shape are built alike.
  IdVector<ShapeId, Shape> shapes_;
  IdVector<LeafId, IdVector<ShapeId, std::vector<NodeId>>> nodes_;  ///< Ascending.
  std::vector<NodeId> overridden_;
};

/// The plan with its devices renamed, and without what does not matter to its time: prediction,
/// planner, hashes.
ir::Plan renamed(const ir::Plan& plan, const IdVector<DeviceId, DeviceId>& to);
/// Devices in the order in which the plan names them.
std::vector<DeviceId> devices_in_order(const ir::Plan& plan);

}  // namespace orrery::sim
