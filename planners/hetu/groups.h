/// Which tensor-parallel groups a cluster gives, and which of them are equal. [Hetu v2, A.3; public
/// code, engine/strategy.py]
#pragma once
#include <functional>
#include <vector>

#include "models/base/units.h"
#include "planners/planner.h"

namespace orrery::planners {

enum class HetuOrder { paper, slowest_first_public };

/// Groups with the same GPU types and links: equal to the programs.
struct HetuClass {
  std::vector<int> gpu_types;  ///< Types of the members, ascending.
  int size = 1;                ///< Tensor-parallel degree.
  double slowness = 1;         ///< Layer time of the slowest member over that of the fastest type.
  Seconds layer_time;          ///< One sample without recomputation.
  std::vector<std::vector<DeviceId>> groups;  ///< In device order.
};

/// The groups of a cluster under one full tensor-parallel degree, by class in the order that
/// they have in a pipeline.
struct HetuGroups {
  int full = 1;
  int idle = 0;  ///< GPUs left out.
  std::vector<HetuClass> classes;
  int count() const;
};

/// How groups are formed and told apart.
struct HetuGroupRule {
  const PlannerInput& input;
  double alpha = 2;  ///< Setting hetero_tp_alpha.
  HetuOrder order = HetuOrder::paper;
  std::function<Seconds(int gpu_type)> model_time;  ///< The whole model on one GPU of the type.
  /// One layer for one sample without recomputation.
  std::function<Seconds(const std::vector<DeviceId>& group)> layer_time;
};

/// Inside each node: full groups of one GPU type, rests split by split_rest (with `use_rest`) or
/// left idle. No groups where the vendors or sizes of the nodes allow none.
HetuGroups form_groups(const HetuGroupRule& rule, int full, bool use_rest);

}  // namespace orrery::planners
