#include "tests/worlds/plans.h"

#include <utility>

namespace orrery::worlds {

std::vector<DeviceId> devices(const std::vector<int>& ids) {
  std::vector<DeviceId> result;
  for (const int id : ids) result.push_back({id});
  return result;
}

ir::Group group(const std::vector<int>& ids, int samples) {
  ir::Group result;
  result.devices = devices(ids);
  result.tensor_parallel = static_cast<int>(ids.size());
  result.samples = samples;
  return result;
}

ir::Segment segment(int first, int last, std::vector<ir::Group> groups, ir::Recompute recompute) {
  ir::Segment result;
  result.first_block = {first};
  result.last_block = {last};
  result.groups = std::move(groups);
  result.recompute = recompute;
  return result;
}

ir::Pipeline pipeline(const std::vector<int>& layers, const std::vector<std::vector<int>>& groups,
                      int micro_batches, ir::Recompute recompute) {
  ir::Pipeline result;
  result.micro_batches = micro_batches;
  int next = 0;
  for (std::size_t s = 0; s < layers.size(); ++s) {
    const bool last = s + 1 == layers.size();
    const int end = next + layers[s] + (s == 0 ? 1 : 0) + (last ? 1 : 0);
    result.stages.push_back({{segment(next, end - 1, {group(groups[s])}, recompute)}});
    next = end;
  }
  return result;
}

ir::Plan make_plan(const PlanShape& shape, int blocks) {
  ir::Plan plan;
  plan.schedule = shape.schedule;
  plan.communication.activation_transfer = shape.transfer;
  plan.communication.gradient_overlap = shape.overlap;
  int device = 0;
  for (int p = 0; p < shape.pipelines; ++p) {
    ir::Pipeline pipeline;
    pipeline.micro_batches = shape.micro_batches;
    pipeline.micro_batch_size = shape.groups * shape.samples;
    int block = 0;
    for (int s = 0; s < shape.stages; ++s) {
      ir::Segment segment;
      segment.first_block = {block};
      block = shape.blocks.empty() ? blocks * (s + 1) / shape.stages : block + shape.blocks[s];
      segment.last_block = {block - 1};
      for (int g = 0; g < shape.groups; ++g) {
        ir::Group group;
        group.tensor_parallel = shape.tensor_parallel;
        group.samples = shape.samples;
        for (int t = 0; t < shape.tensor_parallel; ++t) group.devices.push_back({device++});
        segment.groups.push_back(group);
      }
      pipeline.stages.push_back({{segment}});
    }
    plan.pipelines.push_back(pipeline);
  }
  return plan;
}

}  // namespace orrery::worlds
