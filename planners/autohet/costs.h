/// What AutoHet's search asks again and again within one round (TP dimension, micro-batch size,
/// recomputation): units and their kinds, stage times by Eq. 5, hops, layers that fit, the layer
/// partition of Eq. 4 and the iteration time of Eq. 1.
///
/// Units of one kind are interchangeable: same GPU types, same times. Kinds are numbered from the
/// weakest to the strongest, which is the order of pipeline stages.
#pragma once
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "planners/autohet/settings.h"
#include "planners/kit/grouping.h"
#include "planners/kit/stage_costs.h"

namespace orrery::planners {

/// A pipeline with devices and layers.
struct AutohetPipeline {
  std::vector<int> units;  ///< By stage, positions in AutohetCosts::units().
  std::vector<int> layers;
  int micro_batches = 1;
};

/// Caches; keeps references. Not for concurrent use.
class AutohetCosts {
 public:
  struct Kind {
    int count = 0;
    double power = 0;    ///< g of Eq. 2: layers per second, or peak FLOP/s.
    Bytes capacity;      ///< Of the smallest device of a unit, as StageCosts::capacity.
    int first_unit = 0;  ///< The first one in the order of devices.
  };

  /// `units` without kinds, in the order of devices.
  AutohetCosts(const PlannerInput& input, const AutohetSettings& settings,
               const AutohetRound& round, const StageCosts& costs, std::vector<AutohetUnit> units);

  const std::vector<AutohetUnit>& units() const { return units_; }
  const std::vector<Kind>& kinds() const { return kinds_; }

  /// Forward and backward of `layers` layers from layer `first` on a unit, one micro-batch, with
  /// tensor-parallel all-reduces; T(n) = sum of T(2^b) over the bits of n [Eq. 5], T(2^b) being the
  /// time of the model's first 2^b layers, or the sum of the layers' own times. Embedding and head
  /// are added where they are.
  Seconds stage_time(int kind, int first, int layers) const;
  /// Activation and its gradient across one cut, one micro-batch, before layer `layer`.
  Seconds hop(int from_unit, int to_unit, int layer) const;

  /// Bytes that a unit of the kind brings to Eq. 3b, and that a group needs at least: states of the
  /// whole model and one micro-batch of activations on each device of a unit.
  Bytes unit_memory(int kind) const;
  Bytes least_group_memory(int replicas) const;
  /// Most layers that a unit of the kind holds at any place in the pipeline. A group whose units
  /// together hold less than the model cannot satisfy fits().
  int unit_layers(int kind, int replicas) const;
  /// Stage order of a group: kinds from weak to strong (mapping on), else in device order.
  std::vector<int> stage_kinds(const UnitCounts& group) const;
  /// Micro-batches of the whole step divided among the pipelines: the largest share.
  int most_micro_batches(int replicas) const;
  /// The layers can be divided over the group's stages so that each fits in memory [Eq. 4b, 4c].
  bool fits(const UnitCounts& group, int replicas) const;

  /// Layers of each stage [Eq. 4]: exact optimum of the objective under the memory constraint, or
  /// nothing when there is none.
  std::optional<std::vector<int>> partition(const std::vector<int>& units, int micro_batches,
                                            int replicas) const;
  /// Sum of t + (K - 1) max t of the pipeline [Eq. 1].
  Seconds pipeline(const AutohetPipeline& pipeline) const;
  /// T_sync of Eq. 1: bytes that the busiest device sends in ring all-reduces of its gradients, 2
  /// (D - 1) / D of them, over the lowest bandwidth on any of the rings. Zero for one pipeline.
  Seconds synchronization(const std::vector<AutohetPipeline>& pipelines) const;

 private:
  /// Times of a unit, forward and backward.
  struct Times {
    Seconds embedding;
    Seconds head;
    std::vector<Seconds> first;  ///< Of the first n layers.
    auto operator<=>(const Times&) const = default;
  };
  Times times(const std::vector<DeviceId>& devices) const;
  double power(const std::vector<DeviceId>& devices, const Times& times) const;
  StageShape shape(int first, int layers, int in_flight, int replicas) const;
  int in_flight(int stages, int stage, int micro_batches) const;
  int most_layers(int kind, int first, int in_flight, int replicas) const;
  std::optional<std::vector<int>> even_split(const std::vector<int>& kinds, int micro_batches,
                                             int replicas) const;
  std::optional<std::vector<int>> best_split(const std::vector<int>& units, int micro_batches,
                                             int replicas) const;
  BytesPerSecond lowest_bandwidth(const std::vector<const AutohetUnit*>& holders) const;

  const PlannerInput& input_;
  const AutohetSettings& settings_;
  AutohetRound round_;
  const StageCosts& costs_;
  std::vector<AutohetUnit> units_;
  std::vector<Kind> kinds_;
  std::vector<Times> times_;       // By kind.
  std::vector<int> device_order_;  // Kinds by first unit.
  int layers_ = 0;
  std::vector<Bytes> cuts_;  // Distinct activations between layers.
  mutable std::map<std::tuple<int, int, double>, Seconds> hops_;
  mutable std::map<std::tuple<int, int, int, int>, int> most_layers_;
  using PartitionKey = std::tuple<std::vector<int>, std::vector<Seconds>, int, int>;
  mutable std::map<PartitionKey, std::optional<std::vector<int>>> partitions_;
};

/// The devices in tensor-parallel groups of `tensor`: node by node, equal types next to each other.
/// Nothing when the devices of a node do not divide by it, and, with TensorLinks::nvlink, when a
/// group is not joined by NVLink [Algorithm 1, line 2]; or when vendors would mix.
std::optional<std::vector<AutohetUnit>> autohet_units(const PlannerInput& input, int tensor,
                                                      AutohetSettings::TensorLinks links);

/// PlannerEntry::estimate.
OwnEstimate autohet_estimate;

}  // namespace orrery::planners
