/// A mixed cluster as planners for homogeneous clusters see it: hosts with equally many GPUs, all
/// of one mean speed, one path inside a host and one between hosts. Metis's authors run Alpa and
/// AMP so on mixed clusters: the profiled times of the GPU types are averaged [Metis, ATC 2024,
/// section 3], and nodes with unequal numbers of GPUs are cut into hosts that fill a hosts x GPUs
/// grid [section 5.3]. Memory is that of the smallest GPU, so that what fits in the view fits on
/// the devices, whichever of them a stage gets.
#pragma once
#include <vector>

#include "models/base/units.h"
#include "models/ir/names.h"
#include "models/spec/topology.h"
#include "planners/kit/stage_costs.h"
#include "planners/planner.h"

namespace orrery::planners {

/// What the view takes for the time of a computation: the mean over its devices, or the slowest.
enum class ViewedSpeed { average, slowest };
ir::EnumNames<ViewedSpeed> enum_names(ViewedSpeed);

/// Host sizes worth a search, largest first: powers of two up to the largest node, without those
/// that use no more devices than twice their size does.
std::vector<int> host_sizes(const PlannerInput& input);

/// Keeps references to input and costs. Caches; not for concurrent use.
class UniformView {
 public:
  /// Cuts the usable devices of each node (of one vendor) into hosts of `gpus_per_host` in id
  /// order; what does not fill a host stays idle.
  UniformView(const PlannerInput& input, const StageCosts& costs, int gpus_per_host,
              ViewedSpeed speed);

  const std::vector<std::vector<DeviceId>>& hosts() const { return hosts_; }
  int gpus_per_host() const { return gpus_per_host_; }
  int devices() const { return static_cast<int>(hosts_.size()) * gpus_per_host_; }

  /// Forward and backward of one micro-batch, computation only.
  Seconds compute(const StageShape& shape) const;
  /// Ring all-reduces of tensor parallelism for one micro-batch, inside a host.
  Seconds tensor_parallel(const StageShape& shape) const;
  Seconds optimizer(const StageShape& shape) const;
  /// Ring all-reduce of `bytes`: 2 (p - 1) (bytes / p / bandwidth + latency). All-gather and
  /// reduce-scatter take half of it. [Thakur et al. 2005]
  Seconds all_reduce(int members, Bytes bytes, const models::Path& path) const;

  /// Means over neighbors in id order: of the latency, and of the time per byte.
  const models::Path& inside() const { return inside_; }
  const models::Path& between() const { return between_; }
  /// Smallest StageCosts::capacity of the devices.
  Bytes capacity() const { return capacity_; }
  /// Name of the GPU type that has it.
  const std::string& smallest_gpu() const { return smallest_gpu_; }

  /// Undivided parameters of the layers.
  double parameters(int first, int layers) const;
  /// Layers that cost the same at the first position that has it: where all layers are alike, the
  /// stages that touch neither end differ only in their length. Returns the first layer to ask for.
  int representative(int first, int layers) const;

 private:
  void cut_hosts(int gpus_per_host);
  void average_paths();

  const PlannerInput& input_;
  const StageCosts& costs_;
  int gpus_per_host_;
  ViewedSpeed speed_;
  std::vector<std::vector<DeviceId>> hosts_;
  std::vector<double> share_;  ///< Share of the devices, by GPU type.
  models::Path inside_;
  models::Path between_;
  Bytes capacity_;
  std::string smallest_gpu_;
  bool alike_ = true;  ///< All layers.
};

/// The devices of a chain of stages, `sizes` of them each. Stages with the larger `unit` come
/// first, equal ones in the order of the chain; a unit is what must lie inside a host (a power of
/// two) or covers whole hosts, and divides the size of its stage: units never straddle hosts then.
std::vector<std::vector<DeviceId>> place_stages(const UniformView& view,
                                                const std::vector<int>& sizes,
                                                const std::vector<int>& units);

}  // namespace orrery::planners
