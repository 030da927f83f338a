/// The device structures that `exhaustive` goes through: which devices work together, in which
/// order, and which stay idle. Layers, batches and memory are not looked at here.
///
/// Devices that can be exchanged for one another without changing any path, type or node are one
/// class, and structures say only how many devices of a class are in each part: one structure
/// represents all its renamings. Pipelines are unordered, and so are the groups of a stage and the
/// members of a group but for the first one, which sends the activations. (Gradient rings follow
/// that order, node by node: where more than three nodes have unequal paths, a ring in another
/// order of the nodes could be faster.)
#pragma once
#include <cstdint>
#include <vector>

#include "planners/planner.h"

namespace orrery::planners::exhaustive {

/// Interchangeable devices, ascending.
struct DeviceClass {
  std::vector<DeviceId> devices;
  NodeId node;  ///< Invalid: each device is alone in its node.
};

/// Classes of the devices, by their first device. Two devices are in one class when both have the
/// same type, are in the same node (or both alone in theirs) and see equal paths to each other and
/// to all other devices.
std::vector<DeviceClass> device_classes(const PlannerInput& input);

/// Positions of parts in a list of what they can be, and how many devices of each class they use.
struct Parts {
  std::vector<int> parts;
  std::vector<int> use;
};

struct Space {
  std::vector<DeviceClass> classes;
  /// Tensor-parallel groups: the classes of their members, the sender's first, the rest ascending.
  std::vector<std::vector<int>> groups;
  std::vector<Parts> stages;      ///< Groups; the first one sends, the rest ascend.
  std::vector<Parts> chains;      ///< Stages of a pipeline in order; shorter ones first.
  std::vector<Parts> structures;  ///< Pipelines, ascending chains; fewer ones first.
  bool complete = true;           ///< False when a limit cut something off.

  /// Devices of a structure by pipeline, stage and group: those of a class in their order.
  std::vector<std::vector<std::vector<std::vector<DeviceId>>>> place(const Parts& structure) const;
};

/// All structures of groups inside a node, of one vendor where vendors talk through host memory,
/// with a degree that divides the model; at most as many stages as blocks and as many pipelines, or
/// groups in a stage, as samples. At most `most_groups` groups in a stage, `most_structures`
/// structures, a quarter as many pipelines and a sixteenth as many stages and groups. Ends early
/// when the search is canceled.
Space make_space(const PlannerInput& input, int most_groups, std::int64_t most_structures);

}  // namespace orrery::planners::exhaustive
