/// What the HexiScale search asks again and again: times of stages and hops by the paper's cost
/// model, and how many layers a stage can hold.
#pragma once
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "models/base/id_vector.h"
#include "models/cost/hexiscale_model.h"
#include "planners/hexiscale/settings.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Caches the paths between the devices of the search and the memory of a layer. Keeps references
/// to the input. Not for concurrent use.
class HexiscaleCosts {
 public:
  HexiscaleCosts(const PlannerInput& input, const HexiscaleSettings& settings);

  /// One layer, one micro-batch: computation and tensor-parallel communication. [Eq. 3, 6, 8]
  Seconds per_layer(std::span<const DeviceId> group) const;
  /// One micro-batch, both directions. [Eq. 5]
  Seconds hop(std::span<const DeviceId> from, std::span<const DeviceId> to) const;
  models::HexiscaleEstimate estimate(const ir::Plan& plan) const { return model_.estimate(plan); }
  BytesPerSecond bandwidth(DeviceId a, DeviceId b) const { return path(a, b).bandwidth; }
  /// Peak of the device in the job's dtype: the weight c_d of a vertex.
  double power(DeviceId device) const;

  /// Where a stage is in its pipeline.
  struct Place {
    bool first = false;  ///< Holds the embedding.
    bool last = false;   ///< Holds the head.
    int in_flight = 1;   ///< Micro-batches whose activations it holds.
    int pipelines = 1;   ///< Copies of the model, among which ZeRO divides.
  };
  /// Most layers that the group holds, 0 or more. With MemoryRule::timeline never more than
  /// models::check_memory accepts: of unequal layers each counts as the largest. With
  /// equation_11 as Eq. 11 counts, layer by layer.
  int max_layers(std::span<const DeviceId> group, const Place& place) const;

  /// Pipelines whose model states alone fill the devices: no search needs to go beyond. At most
  /// the number of devices; 0 when not even one copy fits.
  int most_pipelines() const;

  int layers() const { return layers_; }
  /// Degrees that model and job allow, ascending.
  const std::vector<int>& tensor_degrees() const { return degrees_; }
  ir::ScheduleKind schedule() const { return schedule_; }
  ir::Recompute recompute() const { return recompute_; }
  int zero_stage() const { return zero_; }

 private:
  /// Per device of a group, without fragmentation and context.
  struct Part {
    Bytes states;
    Bytes activations;  ///< Of one micro-batch.
    Bytes recomputed;
    Bytes logits;
    Bytes staging;
  };
  struct Parts {
    Part layer;
    Part embedding;
    Part head;
  };
  Part part(BlockId first, BlockId last, int tensor, int pipelines) const;
  const Parts& parts(int tensor, int pipelines) const;
  models::Path path(DeviceId a, DeviceId b) const;

  const PlannerInput& input_;
  const HexiscaleSettings& settings_;
  IdVector<DeviceId, int> dense_;    // Position among the devices of the search.
  std::vector<models::Path> paths_;  // [devices x devices]
  models::HexiscaleModel model_;
  int layers_ = 0;
  std::vector<int> degrees_;
  ir::ScheduleKind schedule_ = ir::ScheduleKind::one_f_one_b;
  ir::Recompute recompute_ = ir::Recompute::none;
  int zero_ = 0;
  mutable std::map<std::pair<int, int>, Parts> parts_;
};

}  // namespace orrery::planners
