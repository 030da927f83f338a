#include "planners/mixed_length/prepared_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/check/validate.h"
#include "models/cost/collective.h"
#include "models/cost/memory.h"
#include "models/ir/op_traits.h"
#include "models/lower/lower.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

ir::Pipeline make_pipeline(const PipelineKind& kind, const models::Workload& workload,
                           ir::Recompute recompute, int zero_stage, int first_device) {
  ir::Pipeline pipeline;
  int layer = 0;
  for (const int own : even_shares(count_layers(workload), kind.stages)) {
    ir::Group group;
    group.tensor_parallel = kind.tensor_parallel;
    group.sequence = kind.sequence;
    group.sequence_degree = kind.sequence_degree;
    for (int d = 0; d < kind.tensor_parallel * kind.sequence_degree; ++d) {
      group.devices.push_back(DeviceId{first_device++});
    }
    pipeline.stages.push_back(
        stage_of_layers(workload, layer, own, {std::move(group)}, recompute, zero_stage));
    layer += own;
  }
  return pipeline;
}

ir::Plan make_plan(const LengthStrategy& strategy, const models::Workload& workload,
                   ir::Recompute recompute, int zero_stage) {
  ir::Plan plan;
  plan.communication.activation_transfer = ir::ActivationTransfer::sliced;
  int device = 0;
  for (const PipelineKind& kind : strategy.pipelines) {
    for (int i = 0; i < kind.count; ++i) {
      plan.pipelines.push_back(make_pipeline(kind, workload, recompute, zero_stage, device));
      device += devices_of(kind);
    }
  }
  return plan;
}

/// A job that allows what the plan does, with the plan's batch.
models::Job job_of(const models::Job& job, const ir::Plan& plan, ir::Recompute recompute,
                   int zero_stage) {
  models::Job all = job;
  all.global_batch = ir::global_batch(plan);
  all.allowed.recompute = {recompute};
  all.allowed.zero_stages = {zero_stage};
  all.allowed.sequence_parallel = true;
  all.allowed.schedules = {plan.schedule};
  return all;
}

/// Time of an op's inner collectives on their bottlenecks, as the simulator prices them in
/// collapsed programs.
Seconds inner_time(const ir::Program& program, const ir::Op& op, const models::Topology& topology) {
  Seconds total;
  const models::PathFunction path = [&](DeviceId a, DeviceId b) { return topology.path(a, b); };
  for (const ir::InnerCollective& inner : program.inner_of(op)) {
    Seconds slowest;
    for (const std::int32_t group : inner.groups) {
      slowest =
          std::max(slowest, models::collective_time(inner.kind, models::CollectiveAlgorithm::ring,
                                                    program.group(group).devices, inner.bytes, path,
                                                    inner.bytes_per_peer));
    }
    total += inner.count * slowest;
  }
  return total;
}

}  // namespace

std::variant<PreparedStrategy, models::Infeasible> PreparedStrategy::make_with(
    const MixedLengthInput& input, const LengthStrategy& strategy, ir::Recompute recompute,
    int zero_stage) {
  const models::Workload& workload = input.pricer.workload(strategy.longest);
  const models::Cluster& cluster = input.pricer.cluster();
  std::int64_t devices = 0;
  for (const PipelineKind& kind : strategy.pipelines) {
    devices += std::int64_t{kind.count} * devices_of(kind);
  }
  if (devices > cluster.size()) {
    return models::Infeasible{"devices", fmt::format("the strategy for {} tokens uses {} GPUs, the "
                                                     "cluster has {}",
                                                     strategy.longest, devices, cluster.size())};
  }
  PreparedStrategy made;
  made.pricer_ = &input.pricer;
  made.topology_ = &input.topology;
  made.longest_ = strategy.longest;
  made.plan_ = make_plan(strategy, workload, recompute, zero_stage);
  const models::Job job = job_of(input.pricer.job(), made.plan_, recompute, zero_stage);
  const auto defects = models::validate(made.plan_, cluster, workload, job);
  if (!defects.empty()) {
    return models::Infeasible{"valid plan", defects.front().path + ": " + defects.front().what};
  }
  int pipeline = 0;
  for (const PipelineKind& kind : strategy.pipelines) {
    for (int i = 0; i < kind.count; ++i, ++pipeline) {
      std::int64_t low = 0;  // Fits.
      std::int64_t high = strategy.longest / input.multiple + 1;
      while (high - low > 1) {
        const std::int64_t middle = (low + high) / 2;
        (made.fits(pipeline, middle * input.multiple) ? low : high) = middle;
      }
      made.limits_.push_back(low * input.multiple);
    }
  }
  made.program_ = models::lower(made.plan_, cluster, workload, job, {});
  return made;
}

std::variant<PreparedStrategy, models::Infeasible> PreparedStrategy::make(
    const MixedLengthInput& input, const LengthStrategy& strategy) {
  std::int64_t best = 0;
  for (const ir::Recompute recompute : input.set.recompute) {
    for (const int zero : input.set.zero_stages) {
      auto made = make_with(input, strategy, recompute, zero);
      const auto* prepared = std::get_if<PreparedStrategy>(&made);
      if (prepared == nullptr) return made;
      const auto [least, most] =
          std::minmax_element(prepared->limits_.begin(), prepared->limits_.end());
      best = std::max(best, *most);
      if (*most >= strategy.longest && *least > 0) return made;
    }
  }
  return models::Infeasible{
      "device memory",
      fmt::format("the strategy for sequences up to {} tokens holds at most {} of them",
                  strategy.longest, best)};
}

bool PreparedStrategy::fits(int pipeline, std::int64_t length) const {
  const models::Workload& workload = pricer_->workload(length);
  const models::Cluster& cluster = pricer_->cluster();
  const auto& stages = plan_.pipelines[pipeline].stages;
  const int count = static_cast<int>(stages.size());
  int replicas = 0;  // each part of a sequence has tokens of its own
  for (const ir::Pipeline& each : plan_.pipelines) {
    replicas += each.stages.front().segments.front().groups.front().sequence_degree;
  }
  for (int s = 0; s < count; ++s) {
    const ir::Segment& segment = stages[s].segments.front();
    const models::SegmentMemory memory =
        models::segment_memory(segment, segment.groups.front(), replicas, workload, pricer_->job());
    const int in_flight =
        models::micro_batches_in_flight(plan_.schedule, count, s, count, plan_.virtual_stages);
    const Bytes need = memory.states() + in_flight * memory.activations_per_micro_batch +
                       memory.communication + memory.logits + memory.recomputed;
    for (const DeviceId device : segment.groups.front().devices) {
      const models::GpuType& gpu = cluster.gpu(device);
      if (models::device_memory(pricer_->profile(), gpu.name, need) > gpu.memory) return false;
    }
  }
  return true;
}

const std::vector<PreparedStrategy::Passes>& PreparedStrategy::cost(int pipeline,
                                                                    std::int64_t length) const {
  const auto known = costs_.find({pipeline, length});
  if (known != costs_.end()) return known->second;
  const models::MicroBatchLengths lengths(plan_.pipelines.size(), {length});
  const ir::Program program = models::with_lengths(program_, lengths);
  const models::ProgramPrices prices = pricer_->prices(program, lengths);
  std::map<std::pair<int, int>, std::map<int, Passes>> by_group;  // (pipeline, stage), group
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const ir::Op& op = program.ops[i];
    if (!ir::is_pass(op.kind)) continue;
    const ir::Rank& rank = program.rank_of(op);
    Passes& passes = by_group[{rank.pipeline, rank.stage}][rank.group];
    (op.kind == ir::OpKind::forward ? passes.forward : passes.backward) +=
        prices.compute(OpId{static_cast<std::int32_t>(i)}) + inner_time(program, op, *topology_);
  }
  for (const auto& [stage, groups] : by_group) {  // stages of a pipeline ascend
    Passes slowest;
    for (const auto& [group, own] : groups) {
      slowest = {std::max(slowest.forward, own.forward), std::max(slowest.backward, own.backward)};
    }
    costs_[{stage.first, length}].push_back(slowest);
  }
  return costs_[{pipeline, length}];
}

ir::Plan PreparedStrategy::plan_for(const models::MicroBatchLengths& lengths) const {
  ir::Plan plan = plan_;
  for (std::size_t p = 0; p < lengths.size(); ++p) {
    plan.pipelines[p].micro_batches = static_cast<int>(lengths[p].size());
  }
  return plan;
}

}  // namespace orrery::planners
