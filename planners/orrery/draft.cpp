#include "planners/orrery/draft.h"

#include <algorithm>

#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

std::vector<ir::Group> plan_groups(const DraftStage& stage, const PlannerInput& input) {
  std::vector<ir::Group> groups;
  for (const DraftGroup& group : stage.groups) {
    ir::Group& made = groups.emplace_back();
    made.devices = group.devices;
    made.tensor_parallel = group.degree();
    made.samples = group.samples;
    made.sequence = megatron_sequence(input.job, group.degree());
  }
  return groups;
}

/// Appends the segments of a chunk, one for each way to recompute.
void append_segments(const DraftChunk& chunk, int first, int virtual_stage, const ir::Zero& zero,
                     const std::vector<ir::Group>& groups, const PlannerInput& input,
                     ir::Stage& stage) {
  for (const auto& [layers, recompute] : chunk.parts()) {
    if (layers == 0) continue;
    ir::Segment segment = segment_of_layers(input.workload, first, layers);
    segment.virtual_stage = virtual_stage;
    segment.groups = groups;
    segment.recompute = recompute;
    segment.zero = zero;
    stage.segments.push_back(std::move(segment));
    first += layers;
  }
}

/// The chunks of a stage; none where it cannot be said.
std::optional<std::vector<DraftChunk>> chunks_of(const ir::Stage& stage, const ir::Plan& plan,
                                                 const models::Workload& workload) {
  std::vector<DraftChunk> chunks(static_cast<std::size_t>(plan.virtual_stages), DraftChunk{0});
  for (const ir::Segment& segment : stage.segments) {
    if (segment.groups != stage.segments.front().groups || segment.expert_parallel != 1) {
      return std::nullopt;
    }
    const int layers = std::min(segment.last_block, workload.last_layer()).value -
                       std::max(segment.first_block, workload.first_layer()).value + 1;
    if (layers < 1) return std::nullopt;
    DraftChunk& chunk = chunks[static_cast<std::size_t>(segment.virtual_stage)];
    chunk.layers += layers;
    if (segment.recompute == ir::Recompute::full) chunk.full += layers;
    if (segment.recompute == ir::Recompute::selective) chunk.selective += layers;
  }
  for (const DraftChunk& chunk : chunks) {
    if (chunk.layers == 0) return std::nullopt;
  }
  return chunks;
}

bool plain_group(const ir::Group& group) {
  return group.sequence_degree == 1 && group.sequence != ir::SequenceParallelism::ulysses &&
         group.sequence != ir::SequenceParallelism::ring;
}

}  // namespace

int DraftStage::layers() const {
  int sum = 0;
  for (const DraftChunk& chunk : chunks) sum += chunk.layers;
  return sum;
}

ir::Plan plan_of(const Draft& draft, const PlannerInput& input) {
  ir::Plan plan;
  plan.schedule = draft.schedule;
  plan.virtual_stages = draft.virtual_stages;
  plan.communication.activation_transfer = draft.transfer;
  plan.communication.gradient_overlap = draft.overlap;
  for (const DraftPipeline& chain : draft.pipelines) {
    ir::Pipeline& pipeline = plan.pipelines.emplace_back();
    pipeline.micro_batches = chain.micro_batches;
    pipeline.micro_batch_size = chain.micro_batch_size;
    pipeline.stages.resize(chain.stages.size());
    int first = 0;
    for (int c = 0; c < draft.virtual_stages; ++c) {
      for (std::size_t s = 0; s < chain.stages.size(); ++s) {
        const DraftStage& stage = chain.stages[s];
        const DraftChunk& chunk = stage.chunks[static_cast<std::size_t>(c)];
        append_segments(chunk, first, c, draft.zero, plan_groups(stage, input), input,
                        pipeline.stages[s]);
        first += chunk.layers;
      }
    }
  }
  return plan;
}

std::optional<Draft> draft_of(const ir::Plan& plan, const PlannerInput& input) {
  if (plan.redundancy != ir::Redundancy::none || plan.optimizer != ir::OptimizerStart::together) {
    return std::nullopt;
  }
  Draft draft;
  draft.schedule = plan.schedule;
  draft.virtual_stages = plan.virtual_stages;
  draft.zero = plan.pipelines.front().stages.front().segments.front().zero;
  draft.transfer = plan.communication.activation_transfer;
  draft.overlap = plan.communication.gradient_overlap;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    if (!pipeline.reroutes.empty() || pipeline.length_range) return std::nullopt;
    DraftPipeline& chain = draft.pipelines.emplace_back();
    chain.micro_batches = pipeline.micro_batches;
    chain.micro_batch_size = pipeline.micro_batch_size;
    for (const ir::Stage& stage : pipeline.stages) {
      const auto chunks = chunks_of(stage, plan, input.workload);
      if (!chunks) return std::nullopt;
      DraftStage& made = chain.stages.emplace_back();
      made.chunks = *chunks;
      for (const ir::Segment& segment : stage.segments) {
        if (segment.zero != draft.zero) return std::nullopt;
      }
      for (const ir::Group& group : stage.segments.front().groups) {
        if (!plain_group(group)) return std::nullopt;
        made.groups.push_back({group.devices, group.samples});
      }
    }
  }
  return draft;
}

std::vector<DeviceId> devices_of(const Draft& draft) {
  std::vector<DeviceId> devices;
  for (const DraftPipeline& pipeline : draft.pipelines) {
    for (const DraftStage& stage : pipeline.stages) {
      for (const DraftGroup& group : stage.groups) {
        devices.insert(devices.end(), group.devices.begin(), group.devices.end());
      }
    }
  }
  std::sort(devices.begin(), devices.end());
  return devices;
}

}  // namespace orrery::planners
