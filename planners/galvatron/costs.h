/// What Galvatron believes of a cluster and a model: time and memory of one layer under one
/// strategy, and the time of a pipeline of stages. Homogeneous: a layer takes the average of the
/// GPU types, a collective the slowest group of its kind, a device has the smallest memory.
/// [Miao et al., VLDB 2023, cost estimation; constants and the overlap rule from the public
/// code PKU-DAIR/Hetu-Galvatron, search_engine/cost_model]
#pragma once
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "models/ir/plan.h"
#include "planners/kit/stage_costs.h"
#include "planners/planner.h"

namespace orrery::planners {

/// How the devices of a stage, tensor x replicas of them, compute one layer.
struct GalvatronStrategy {
  int tensor = 1;
  int replicas = 1;
  int zero = 0;  ///< 0: DP; 2: DP that shards gradients and optimizer; 3: SDP.
  ir::Recompute recompute = ir::Recompute::none;
  auto operator<=>(const GalvatronStrategy&) const = default;
};

struct GalvatronConstants {
  /// Computation and gradient reduction that overlap slow each other down by this factor.
  double overlap = 1.3;
  /// Bytes that a process takes before the first tensor; 0: as the profile says.
  Bytes context = 1024 * 1_MiB;
};

/// Seconds of one micro-batch.
struct GalvatronTime {
  double compute = 0;  ///< Without gradient reduction: all but one micro-batch.
  double total = 0;    ///< With it.
};

/// max compute x (m - 1 + P) + the longest rest of a gradient reduction that the stages before do
/// not hide: max over i of (total_i - sum of compute_0 ... compute_i), at least 0.
double galvatron_iteration(std::span<const GalvatronTime> stages, int micro_batches);

/// `compute` seconds of computation overlapping `communicate` seconds of communication: while both
/// run, each takes `factor` times as long. max + (factor - 1) min.
double overlapped(double compute, double communicate, double factor);

class GalvatronCosts {
 public:
  /// `devices` in rank order: stage by stage, in a stage tensor-parallel neighbors together.
  /// Keeps references.
  GalvatronCosts(const PlannerInput& input, const std::vector<DeviceId>& devices,
                 const GalvatronConstants& constants);

  /// `batch` samples of a micro-batch are divided among the replicas, which they must be divisible
  /// by. Embedding and head belong to the first and the last layer.
  GalvatronTime layer(int layer, const GalvatronStrategy& strategy, int stages, int batch) const;
  /// States after ZeRO, and the kept activations of the micro-batches in flight, on one device.
  double memory(int layer, const GalvatronStrategy& strategy, int batch, int in_flight) const;
  /// What a stage needs in addition: the largest transient (recomputation, logits) and the staging
  /// of a layer.
  double reserve(int layer, const GalvatronStrategy& strategy, int batch) const;
  /// Bytes for the layers of a stage on the smallest device: (memory - context) / fragmentation.
  double budget() const { return budget_; }

  /// Bytes per sample that enter a layer: what a change of strategy moves.
  double activation(int layer) const { return costs_.activation(layer).value; }
  /// Seconds per byte of the slowest link inside any tensor-parallel group.
  double tensor_link(int tensor) const;
  /// Seconds per byte of the slowest link of any gradient ring of a stage.
  double replica_link(int stages, int tensor) const;
  /// Seconds per byte of the slowest link between devices of equal position in neighboring stages.
  double stage_link(int stages) const;

 private:
  struct Layer {
    double forward = 0;    // Of one sample on one device, averaged over GPU types.
    double recompute = 0;  // Of selective recomputation, likewise.
    double reduced = 0;    // Bytes per sample of all tensor-parallel all-reduces of a forward pass.
    double parameters = 0;
  };
  ir::Segment segment(int layer, const GalvatronStrategy& strategy) const;
  ir::Group group(const GalvatronStrategy& strategy, int batch) const;
  double link(DeviceId a, DeviceId b) const { return 1 / costs_.path(a, b).bandwidth.value; }

  const PlannerInput& input_;
  const std::vector<DeviceId>& devices_;
  GalvatronConstants constants_;
  StageCosts costs_;
  std::vector<Layer> layers_;
  double budget_ = 0;
  mutable std::map<int, double> tensor_links_;
  mutable std::map<std::pair<int, int>, double> replica_links_;
  mutable std::map<int, double> stage_links_;
};

}  // namespace orrery::planners
