/// The cost model of the Hetu v2 planner: layer times, what memory has room for, the two integer
/// programs of a layout, its estimate, its plan.
/// [Hetu v2, 5.4, A.2-A.3; public code, engine/strategy.py]
#pragma once
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "models/base/units.h"
#include "models/ir/plan.h"
#include "planners/hetu/groups.h"
#include "planners/hetu/programs.h"
#include "planners/kit/stage_costs.h"
#include "planners/planner.h"

namespace orrery::planners {

enum class HetuLayerTime { profile, alpha_public };
enum class HetuObjective { iteration, steady_public };
enum class HetuMinimum { one, stages_public };

/// Settings of the planner that its costs depend on (hetu.cpp explains them).
struct HetuCostSettings {
  double alpha = 2;
  HetuLayerTime layer_time = HetuLayerTime::profile;
  HetuObjective objective = HetuObjective::iteration;
  HetuMinimum minimum = HetuMinimum::one;
  HetuOrder order = HetuOrder::paper;
  int memory_reserve_mib = 0;
};

/// What is fixed before layers and micro-batches are shared out.
struct HetuVariant {
  int micro_batch_size = 1;
  ir::Recompute recompute = ir::Recompute::none;
  int zero = 0;
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
  auto operator<=>(const HetuVariant&) const = default;
};

/// One pipeline, stages in order.
struct HetuChain {
  std::vector<int> classes;  ///< One per stage.
  std::vector<std::vector<DeviceId>> groups;
  std::vector<int> layers;
  int micro_batches = 0;
  double period = 0;  ///< o_i: max y_j l_j, seconds.
};
using HetuLayout = std::vector<HetuChain>;

/// Keeps references. Caches; not for concurrent use.
class HetuCosts {
 public:
  HetuCosts(const PlannerInput& input, const HetuCostSettings& settings);

  /// form_groups() with these layer times.
  HetuGroups groups(int full, bool use_rest) const;

  /// y: one layer (the mean of all) of one micro-batch, forward and backward.
  Seconds layer_time(const HetuGroups& groups, int group_class, const HetuVariant& variant) const;
  /// Layers that fit on a group at `stage` of `stages` with `pipelines` replicas: the k, emb and
  /// bound of the layer program.
  int most_layers(const HetuGroups& groups, int group_class, const HetuVariant& variant,
                  int pipelines, int stage, int stages) const;

  /// Solves both programs for a deal. Nothing where memory or the batch forbids it.
  std::optional<HetuLayout> solve(const HetuGroups& groups, const HetuVariant& variant,
                                  const Deal& deal) const;
  /// Time of an iteration: slowest pipeline, sum of t + (m - 1) max t with t = y l + ends + two
  /// hops, then `synchronization`; or under steady_public max o m.
  Seconds estimate(const HetuGroups& groups, const HetuVariant& variant,
                   const HetuLayout& layout) const;
  /// The slowest pipeline alone: a lower bound of estimate(), cheap.
  Seconds slowest_pipeline(const HetuGroups& groups, const HetuVariant& variant,
                           const HetuLayout& layout) const;
  /// No layout of these groups over this many pipelines is faster.
  Seconds lower_bound(const HetuGroups& groups, const HetuVariant& variant, int pipelines) const;

  ir::Plan build(const HetuVariant& variant, const HetuLayout& layout) const;
  /// "2 pipelines, micro-batches of 1, ...: 33 of [15 H20 x4, ...]; 31 of [...]": micro-batches,
  /// and of each stage layers, GPU and tensor-parallel degree.
  std::string describe(const HetuVariant& variant, const HetuLayout& layout) const;

  /// Micro-batches of all pipelines together.
  int micro_batches(const HetuVariant& variant) const;

 private:
  struct Times {
    Seconds layer;
    Seconds first;  ///< What the embedding adds.
    Seconds last;   ///< What the head adds.
  };
  StageShape shape(const HetuVariant& variant, int degree, int first, int layers) const;
  Times times(const std::vector<DeviceId>& group, const HetuVariant& variant) const;
  const Times& class_times(const HetuGroups& groups, int group_class,
                           const HetuVariant& variant) const;
  Times declared_times(const HetuGroups& groups, const HetuClass& c,
                       const HetuVariant& variant) const;
  bool fits(const HetuClass& group_class, const StageShape& shape) const;
  Seconds synchronization(const HetuVariant& variant, const HetuLayout& layout) const;
  std::optional<std::vector<int>> chain_layers(const HetuGroups& groups, const HetuVariant& variant,
                                               int pipelines, const std::vector<int>& taken) const;

  const PlannerInput& input_;
  const HetuCostSettings& settings_;
  StageCosts costs_;
  int layers_;
  mutable std::map<std::pair<std::vector<DeviceId>, HetuVariant>, Times> times_;
  /// By GPU types, position (first, inner, last, only), variant, pipelines, in flight, limit.
  mutable std::map<std::tuple<std::vector<int>, int, HetuVariant, int, int, int>, int> most_;
  mutable std::map<std::tuple<int, int, HetuVariant>, std::vector<Times>> class_times_;
  /// By full degree, idle GPUs (they tell groups of one cluster apart), variant, pipelines, deal.
  mutable std::map<std::tuple<int, int, HetuVariant, int, std::vector<int>>,
                   std::optional<std::vector<int>>>
      chains_;
  /// By leaders, size of the receiver, layer and micro-batch size.
  mutable std::map<std::tuple<DeviceId, DeviceId, int, int, int>, Seconds> hops_;
};

/// PlannerEntry::estimate.
OwnEstimate hetu_estimate;

}  // namespace orrery::planners
