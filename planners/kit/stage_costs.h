/// What a stage costs, for planners that build plans stage by stage: time of a micro-batch, hop to
/// the next stage, memory. The same prices as the simulator's (Pricer) and the same memory as
/// check_memory's, so that a plan that is pruned here would have been refused there.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "models/base/units.h"
#include "models/cost/path_function.h"
#include "models/cost/pricer.h"
#include "models/ir/plan.h"
#include "planners/kit/integers.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Layers on one tensor-parallel group.
struct StageShape {
  int first = 0;   ///< Layer number, 0: the first after the embedding.
  int layers = 1;  ///< Embedding and head belong to the ranges that touch the ends.
  int tensor_parallel = 1;
  ir::SequenceParallelism sequence = ir::SequenceParallelism::none;
  int sequence_degree = 1;
  int samples = 1;  ///< Of a micro-batch.
  ir::Recompute recompute = ir::Recompute::none;
  int zero_stage = 0;
  int replicas = 1;         ///< Data-parallel copies of the layers, among which ZeRO divides;
  int state_weight = 1;     ///< with uneven shards the sum of their weights, and the own one.
  int expert_parallel = 1;  ///< Groups that hold the experts of a layer together.
  int experts = 0;          ///< Of a layer, that the group holds, and samples of all these groups:
  int expert_samples = 0;   ///< models::ExpertShare.
  int in_flight = 1;        ///< Micro-batches whose activations the stage holds at its peak.
};

/// Keeps references to the input. Caches; not for concurrent use.
class StageCosts {
 public:
  explicit StageCosts(const PlannerInput& input);

  /// One micro-batch.
  struct Passes {
    Seconds forward;
    Seconds backward;            ///< With recomputation.
    Seconds experts_forward{};   ///< Part of forward between dispatch and combine,
    Seconds experts_backward{};  ///< and of backward.
    Seconds both() const { return forward + backward; }
    Seconds experts() const { return experts_forward + experts_backward; }
  };
  /// Computation alone, on a GPU type. [Pricer]
  Passes compute(int gpu_type, const StageShape& shape) const;
  /// Ring all-reduces of the tensor-parallel group alone; with recomputation those of the repeated
  /// forward too. Zero for one device.
  Passes tensor_parallel(std::span<const DeviceId> group, const StageShape& shape) const;
  /// Computation on the slowest member, and its all-reduces.
  Passes passes(std::span<const DeviceId> group, const StageShape& shape) const;

  /// One micro-batch of activations in one direction from the stage that ends before layer `layer`:
  /// leader to leader, then broadcast inside the receiver; or sliced over the receiver and
  /// gathered there.
  Seconds hop(std::span<const DeviceId> from, std::span<const DeviceId> to, int layer, int samples,
              ir::ActivationTransfer transfer) const;
  /// Activation that layer `layer` receives for one sample.
  Bytes activation(int layer) const;

  /// Gradients of the layers, undivided.
  Bytes gradients(int first, int layers) const;
  /// Of all experts of the layers, undivided.
  double expert_parameters(int first, int layers) const;
  /// Ring all-reduce of `bytes` over the devices, node by node. [models/cost/collective.h]
  Seconds all_reduce(std::span<const DeviceId> devices, Bytes bytes) const;
  /// Update of the layers' parameters by one device of the type. [Pricer]
  Seconds optimizer(int gpu_type, const StageShape& shape) const;

  /// Peak on one device of the group, without context and fragmentation. [check_memory]
  Bytes memory(const StageShape& shape) const;
  /// What a device of the type has for that: (memory - context) / fragmentation.
  Bytes capacity(int gpu_type) const { return capacity_[gpu_type]; }
  /// On every member.
  bool fits(std::span<const DeviceId> group, const StageShape& shape) const;

  /// Latency and bandwidth between two devices; cached.
  models::Path path(DeviceId a, DeviceId b) const;
  int layers() const { return layers_; }

 private:
  using ComputeKey = std::tuple<int, int, int, int, int, int, int, int>;
  using MemoryKey = std::tuple<int, int, int, int, int, int, int, int, int, int>;
  const std::vector<Passes>& prefix(int gpu_type, const StageShape& shape) const;
  ir::Segment segment(const StageShape& shape) const;

  const PlannerInput& input_;
  models::PathFunction path_;
  models::Pricer pricer_;
  int layers_ = 0;
  std::vector<Bytes> capacity_;  // By GPU type.
  mutable std::map<ComputeKey, std::vector<Passes>> prefixes_;
  struct Peak {
    Bytes fixed;          // States, transients, staging.
    Bytes per_in_flight;  // Activations of a micro-batch.
  };
  mutable std::map<MemoryKey, Peak> memory_;
  mutable std::unordered_map<std::uint64_t, models::Path> paths_;
};

}  // namespace orrery::planners
