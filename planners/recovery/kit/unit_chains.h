/// Chains of stages over units, for policies that lay out their own pipelines. A unit is a
/// tensor-parallel group of `width` neighboring GPUs of a node, one stage lies on one unit, and
/// each depth has one best cut of the layers, planned once and kept. Made for equal GPUs: on mixed
/// clusters a stage takes as long as on the slowest GPU and must fit on the smallest, so that any
/// unit can take any stage.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "models/interfaces/recovery_policy.h"
#include "planners/kit/stage_costs.h"
#include "planners/recovery/kit/stage_cut.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

using Unit = std::vector<DeviceId>;

struct ChainShape {
  int stages = 1;
  int width = 1;             ///< Devices of a unit: the tensor-parallel degree.
  int micro_batch_size = 1;  ///< In samples.
  /// Number of neighboring stages that share a node; 1: each hop leaves the node.
  int units_per_node = 1;
  ir::Recompute at_least = ir::Recompute::none;  ///< Weaker recomputation is not tried.
  auto operator<=>(const ChainShape&) const = default;
};

/// A cut of all layers over the stages.
struct Chain {
  ChainShape shape;
  std::vector<int> layers;      ///< By stage.
  std::vector<double> seconds;  ///< By stage: forward, backward and hop of one micro-batch.
  ir::Recompute recompute = ir::Recompute::none;
  PipelineRate rate() const;
};

class UnitChains {
 public:
  /// Keeps references to what `input` refers to. Cuts are made for `micro_batches` each, where the
  /// criterion asks for them.
  UnitChains(const PolicyInput& input, CutCriterion criterion);

  /// The best chain of that shape with the weakest recomputation that fits in memory; null: none.
  /// Memory: as many micro-batches in flight as the schedule ever holds, no ZeRO.
  const Chain* chain(const ChainShape& shape) const;

  /// Degrees that model and job allow and that divide the uniform node, ascending, at least one.
  const std::vector<int>& widths() const { return widths_; }
  /// GPUs of a uniform node: nodes of different sizes are cut into nodes of the largest size that
  /// divides all of them. [as planners/kit/uniform_nodes.h]
  int per_node() const { return per_node_; }
  /// Sizes of micro-batches that divide the batch and that the job allows, ascending.
  std::vector<int> micro_batch_sizes() const;
  ir::ScheduleKind schedule() const { return schedule_; }
  int layers() const { return costs_->layers(); }
  const PlannerInput& input() const { return input_; }
  const PolicyInput& policy() const { return policy_; }

 private:
  struct Tables;
  Tables tables(const ChainShape& shape, ir::Recompute recompute) const;
  std::optional<Chain> plan(const ChainShape& shape, ir::Recompute recompute) const;

  PolicyInput policy_;
  PlannerInput input_;
  CutCriterion criterion_;
  std::unique_ptr<StageCosts> costs_;
  ir::ScheduleKind schedule_ = ir::ScheduleKind::one_f_one_b;
  int per_node_ = 1;
  std::vector<int> widths_;
  bool alike_ = true;           ///< All layers.
  std::vector<int> gpu_types_;  ///< That some node has.
  Bytes capacity_;              ///< Of the smallest of them.
  Unit sample_;                 ///< Devices of a uniform node, for paths inside it.
  DeviceId elsewhere_;          ///< Of another node, if there is one.
  mutable std::map<std::tuple<int, int, ir::Recompute>, std::shared_ptr<const Tables>> tables_;
  mutable std::map<ChainShape, std::optional<Chain>> chains_;
};

/// Uniform nodes all of whose devices are in `live` (ascending), in the order of their ids.
std::vector<Unit> uniform_cells(const models::Cluster& cluster, const std::vector<DeviceId>& live,
                                int per_node);

/// Units of `width` devices, in the order in which neighbors lie on different nodes: the first
/// unit of each cell, then the second of each, and so on.
std::vector<Unit> spread_units(const std::vector<Unit>& cells, int width);

/// One pipeline: a chain on as many units.
struct UnitPipeline {
  const Chain* chain = nullptr;
  std::vector<Unit> units;
};

/// The plan of these pipelines, each with its share of the batch (split_batch); signed. The
/// prediction leaves out gradient synchronization. None: fewer micro-batches than pipelines.
std::optional<ir::Plan> plan_of(const UnitChains& chains,
                                const std::vector<UnitPipeline>& pipelines, const char* policy,
                                ir::Redundancy redundancy = ir::Redundancy::none);

/// What is wrong with a plan of a policy that does without ZeRO and virtual stages: problems of
/// validate(), or the verdict on memory; empty: nothing.
std::string problem_of(const PolicyInput& input, const ir::Plan& plan);

}  // namespace orrery::planners
