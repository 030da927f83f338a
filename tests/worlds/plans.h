/// Small plans for tests.
#pragma once
#include <vector>

#include "models/ir/plan.h"

namespace orrery::worlds {

std::vector<DeviceId> devices(const std::vector<int>& ids);

/// A tensor-parallel group.
ir::Group group(const std::vector<int>& ids, int samples = 1);

/// Blocks `first` to `last`, both included.
ir::Segment segment(int first, int last, std::vector<ir::Group> groups,
                    ir::Recompute recompute = ir::Recompute::none);

/// Layers and the only group of each stage; embedding and head belong to its ends.
ir::Pipeline pipeline(const std::vector<int>& layers, const std::vector<std::vector<int>>& groups,
                      int micro_batches, ir::Recompute recompute = ir::Recompute::none);

struct PlanShape {
  int pipelines = 1;
  int stages = 1;
  int groups = 1;  ///< Per stage.
  int tensor_parallel = 1;
  int micro_batches = 4;
  int samples = 1;  ///< Of one group.
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
  ir::ActivationTransfer transfer = ir::ActivationTransfer::leader_broadcast;
  std::vector<int> blocks;  ///< By stage; empty: evenly.
  bool overlap = false;
};

/// Devices in order: pipeline by pipeline, stage by stage, group by group.
ir::Plan make_plan(const PlanShape& shape, int blocks);

}  // namespace orrery::worlds
