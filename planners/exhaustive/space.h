/// The device structures that `exhaustive` goes through: which devices work together, in which
/// order, and which stay idle. Layers, batches and memory are not looked at here.
///
/// Devices that can be exchanged for one another without changing any path, type or node are one
/// class, and structures say only how many devices of a class stand where: renaming devices inside
/// a class is an automorphism of the cluster as the estimate sees it, so one structure stands for
/// all its renamings. Pipelines are unordered, and so are the groups of a stage and the members of
/// a group but for the first one, which sends the activations; rings follow that order, node by
/// node. (Where more than three nodes have unequal paths, a ring in another order of the nodes
/// could be faster.)
#pragma once
#include <cstdint>
#include <vector>

#include "planners/planner.h"

/// A namespace of its own: other planners have kinds and classes too.
namespace orrery::planners::exhaustive {

/// Interchangeable devices, ascending.
struct DeviceClass {
  std::vector<DeviceId> devices;
  NodeId node;  ///< Invalid: each device stands alone in a node of its own.
};

/// Classes of the devices, by their first device. Two devices are in one class when both have the
/// same type, stand in the same node (or both alone in theirs) and see equal paths to each other
/// and to all other devices.
std::vector<DeviceClass> device_classes(const PlannerInput& input);

/// A tensor-parallel group: the classes of its members, the leader's first, the rest ascending.
using GroupKind = std::vector<int>;

/// Groups of a stage, as indices of Space::groups; the first one sends, the rest ascend.
using StageKind = std::vector<int>;

/// A pipeline: its stages in order, as indices of Space::stages.
struct ChainKind {
  std::vector<int> stages;
  std::vector<int> use;  ///< Devices by class.
};

/// Pipelines of a plan, as ascending indices of Space::chains.
using Structure = std::vector<int>;

struct SpaceLimits {
  int groups = 1;  ///< Most groups of a stage.
  /// Most structures that are made; and most pipelines (a quarter) and stages (a sixteenth).
  std::int64_t structures = 1;
};

struct Space {
  std::vector<DeviceClass> classes;
  std::vector<GroupKind> groups;
  std::vector<StageKind> stages;
  std::vector<ChainKind> chains;      ///< Shorter ones first.
  std::vector<Structure> structures;  ///< Those with fewer pipelines first.
  bool complete = true;               ///< False when a limit cut something off.
};

/// A group of the devices, with what the job allows for free: norms split along the sequence.
ir::Group tensor_group(const PlannerInput& input, std::vector<DeviceId> devices,
                       int tensor_parallel, int samples);

/// All structures within the limits: groups inside a node, of one vendor where vendors talk through
/// host memory, with a degree that divides the model; at most as many stages as blocks and as many
/// pipelines, or groups in a stage, as samples. Ends early when the search is canceled.
Space make_space(const PlannerInput& input, const SpaceLimits& limits);

}  // namespace orrery::planners::exhaustive
