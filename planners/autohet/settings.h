/// Settings of the AutoHet planner, and what one round of its search holds fixed.
#pragma once
#include <cstdint>
#include <vector>

#include "models/config/visitor.h"
#include "models/ir/plan.h"
#include "planners/planner.h"

namespace orrery::planners {

struct AutohetSettings {
  enum class Grouping { optimum, every_count, off };
  enum class Mapping { on, off };
  enum class LoadBalance { bottleneck, pipeline, off };
  enum class GroupMemory { stages, sum };
  enum class Power { layer_time, peak };
  enum class LayerTime { powers_of_two, sum };
  enum class TensorLinks { node, nvlink };
  enum class RecomputeChoice { automatic, least, most };

  Grouping grouping = Grouping::optimum;
  Mapping mapping = Mapping::on;
  LoadBalance load_balance = LoadBalance::bottleneck;
  GroupMemory group_memory = GroupMemory::stages;
  Power power = Power::layer_time;
  LayerTime layer_time = LayerTime::powers_of_two;
  TensorLinks tensor_links = TensorLinks::node;
  RecomputeChoice recompute = RecomputeChoice::automatic;
  std::int64_t micro_batches = 0;
  int micro_batch_size = 1;
  ir::ActivationTransfer transfer = ir::ActivationTransfer::sliced;
  int ties = 32;
  std::int64_t search_limit = 20'000'000;
  int evaluate_top = 1;
};

void describe(config::Visitor& v, AutohetSettings& s);

/// What is the same in all plans of one round.
struct AutohetRound {
  int tensor = 1;
  int micro_batch_size = 1;
  ir::Recompute recompute = ir::Recompute::none;
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
  int zero = 0;
  ir::SequenceParallelism sequence = ir::SequenceParallelism::none;
};

/// A tensor-parallel group, a single entity from here on: one stage of a pipeline.
struct AutohetUnit {
  std::vector<DeviceId> devices;
  NodeId node;
  int kind = 0;
};

}  // namespace orrery::planners
