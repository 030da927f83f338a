/// What HexiScale's exact program chooses from: tensor-parallel groups up to the names of
/// interchangeable devices, and what they cost under the paper's model (Appendix A).
#pragma once
#include <string>
#include <vector>

#include "models/base/units.h"
#include "models/ir/plan.h"
#include "planners/hexiscale/costs.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Devices of one node and GPU type that can change places without changing any path: which of them
/// a group takes does not matter, only how many.
struct MilpDeviceClass {
  int machine = 0;  ///< Node and GPU type, numbered in device order.
  std::vector<DeviceId> devices;
};

/// A tensor-parallel group of one machine ("Assume tensor model parallelism is always running over
/// the same type of device" [Appendix A]): how many devices of each class.
struct GroupKind {
  int machine = 0;
  int size = 0;                              ///< Tensor-parallel degree.
  std::vector<std::pair<int, int>> members;  ///< Class and number of devices, classes ascending.
  Seconds per_layer;                         ///< [Eq. 8], one micro-batch.
  int place = 0;  ///< Kinds of one place synchronize gradients equally fast.
};

/// One stage of a solution.
struct MilpStageChoice {
  int kind = 0;
  int layers = 0;
};

/// One pipeline of a solution.
struct PipelineChoice {
  std::vector<MilpStageChoice> stages;
  int micro_batches = 1;
};
using PlanChoice = std::vector<PipelineChoice>;

class HexiscaleMilpSpace {
 public:
  static constexpr std::size_t kMostKinds = 30'000;

  /// Keeps references.
  HexiscaleMilpSpace(const PlannerInput& input, const HexiscaleSettings& settings,
                     const HexiscaleCosts& costs);

  const std::vector<MilpDeviceClass>& classes() const { return classes_; }
  const std::vector<GroupKind>& kinds() const { return kinds_; }
  /// Devices differ by their links in so many ways that kinds() has only the first kMostKinds + 1.
  bool too_many_kinds() const { return kinds_.size() > kMostKinds; }
  int machines() const { return machines_; }
  int places() const { return places_; }
  int layers() const { return costs_.layers(); }
  int devices() const { return static_cast<int>(input_.devices.size()); }
  int micro_batches() const { return micro_batches_; }
  const HexiscaleCosts& costs() const { return costs_; }

  /// Both kinds fit into the cluster at the same time.
  bool coexist(int from, int to) const;
  /// [Eq. 5] between a group of one kind and another group; the kinds must coexist.
  Seconds hop(int from, int to) const;
  /// One layer's part of [Eq. 4] between two holders among `holders`: twice latency and the share
  /// of the gradients. Deviation: of groups whose members are not interchangeable the slowest pair
  /// counts; the paper does not say which members synchronize.
  Seconds exchange(int place, int other, int holders) const;
  /// Layers that a group of the kind holds in stage `stage` (from 0) of `stages` with `in_flight`
  /// micro-batches and `pipelines` copies of the model. [HexiscaleCosts::max_layers]
  int max_layers(int kind, int stage, int stages, int in_flight, int pipelines) const;
  /// Layers times micro-batches per second of all devices, each in its fastest kind: an upper
  /// bound for every plan.
  double most_speed() const;

  /// Gives the groups devices, class by class in the order of pipelines and stages.
  ir::Plan plan(const PlanChoice& choice) const;
  /// "2 pipelines: [TP 2 x RTX4090: 20 layers, TP 1 x A100: 20 layers] x 12 micro-batches, ...".
  std::string describe(const PlanChoice& choice) const;
  /// All machines in one chain of groups of at most `degree` devices, layers by the paper's Eq. 9;
  /// empty when the layers do not fit or `degree` is not allowed.
  PlanChoice chain(int degree) const;

 private:
  void find_classes();
  void find_kinds(int machine);
  std::vector<DeviceId> sample(int kind, int skipped_kind) const;
  bool interchangeable(DeviceId a, DeviceId b) const;

  const PlannerInput& input_;
  const HexiscaleSettings& settings_;
  const HexiscaleCosts& costs_;
  int micro_batches_ = 0;
  int machines_ = 0;
  int places_ = 0;
  std::vector<MilpDeviceClass> classes_;
  std::vector<GroupKind> kinds_;
  std::vector<std::vector<DeviceId>> place_members_;  // One device of each class, by place.
};

}  // namespace orrery::planners
