/// Random plans: every field of the format, well-formed but not necessarily valid for any cluster.
#pragma once
#include <rapidcheck.h>

#include "models/ir/names.h"
#include "models/ir/plan.h"

namespace orrery::ir {

template <class E>
E any_of() {
  const auto table = enum_names(E{});
  return table[*rc::gen::inRange<std::size_t>(0, table.size())].first;
}

inline int small(int low, int high) { return *rc::gen::inRange(low, high + 1); }

template <class F>
auto several(int most, F make) {
  std::vector<decltype(make())> out;
  for (int i = small(1, most); i > 0; --i) out.push_back(make());
  return out;
}

inline Group any_group() {
  Group group;
  for (const int id : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 12))) {
    group.devices.push_back({id});
  }
  group.tensor_parallel = small(1, 8);
  group.sequence = any_of<SequenceParallelism>();
  group.sequence_degree = small(1, 3);
  group.samples = small(1, 3);
  group.experts = small(0, 3);
  return group;
}

inline Segment any_segment() {
  Segment segment;
  segment.first_block = {small(0, 20)};
  segment.last_block = {segment.first_block.value + small(0, 5)};
  segment.virtual_stage = small(0, 2);
  segment.groups = several(3, any_group);
  segment.recompute = any_of<Recompute>();
  segment.zero = {small(0, 3), small(0, 2)};
  segment.expert_parallel = small(1, 2);
  return segment;
}

inline Pipeline any_pipeline() {
  Pipeline pipeline;
  pipeline.micro_batches = small(1, 9);
  pipeline.micro_batch_size = small(1, 9);
  if (*rc::gen::arbitrary<bool>()) pipeline.length_range = LengthRange{small(0, 9), small(9, 99)};
  pipeline.stages = several(3, [] { return Stage{several(2, any_segment)}; });
  for (int i = small(0, 2); i > 0; --i) {
    pipeline.reroutes.push_back({small(0, 3), small(0, 3), small(0, 3)});
  }
  return pipeline;
}

inline Plan any_plan() {
  Plan plan;
  plan.schedule = any_of<ScheduleKind>();
  plan.virtual_stages = small(1, 3);
  plan.communication = {any_of<ActivationTransfer>(), *rc::gen::arbitrary<bool>(),
                        *rc::gen::arbitrary<bool>(), Bytes{static_cast<double>(small(0, 1 << 20))}};
  plan.redundancy = any_of<Redundancy>();
  plan.optimizer = any_of<OptimizerStart>();
  plan.optimizer_offload = *rc::gen::element(0.0, 0.25, 1.0);
  plan.pipelines = several(3, any_pipeline);
  if (*rc::gen::arbitrary<bool>()) {
    plan.predicted = Prediction{Seconds{small(0, 1 << 20) / 7919.0},
                                Bytes{static_cast<double>(small(0, 1 << 30))}};
  }
  plan.planner = *rc::gen::string<std::string>();
  std::erase_if(plan.planner, [](char c) { return c < ' ' || c > '~'; });
  plan.cluster_hash = *rc::gen::element<std::string>("", "0123456789012345", "12e4567890123456");
  plan.workload_hash = *rc::gen::element<std::string>("", "null", "~", "true");
  return plan;
}

}  // namespace orrery::ir
