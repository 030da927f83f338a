/// The elastic strategies C1, C2 and C6 of Hetu v2 (Tables 7 and 8), and a toy model with as many
/// layers and small widths that their tensor-parallel degrees divide.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/ir/model_shape.h"
#include "models/ir/plan.h"
#include "models/sharding/pipelines.h"

namespace orrery::models::testing {

/// Ranks and layers of one stage, both ends included.
struct StageRow {
  int first_rank = 0;
  int last_rank = 0;
  int first_layer = 0;
  int last_layer = 0;
};

inline ir::Group group_of(std::vector<int> devices, bool sequence_split, int samples) {
  ir::Group group;
  for (const int device : devices) group.devices.push_back(DeviceId{device});
  group.tensor_parallel = static_cast<int>(devices.size());
  group.samples = samples;
  if (sequence_split) group.sequence = ir::SequenceParallelism::megatron;
  return group;
}

inline ir::Segment segment_of(int first_layer, int last_layer, std::vector<ir::Group> groups) {
  ir::Segment segment;
  segment.first_block = BlockId{first_layer};
  segment.last_block = BlockId{last_layer};
  segment.groups = std::move(groups);
  return segment;
}

inline ir::Pipeline pipeline_of(int micro_batches, int size, const std::vector<StageRow>& rows) {
  ir::Pipeline pipeline;
  pipeline.micro_batches = micro_batches;
  pipeline.micro_batch_size = size;
  for (const StageRow& row : rows) {
    std::vector<int> devices;
    for (int rank = row.first_rank; rank <= row.last_rank; ++rank) devices.push_back(rank);
    pipeline.stages.push_back(
        {{segment_of(row.first_layer, row.last_layer, {group_of(devices, true, size)})}});
  }
  return pipeline;
}

inline ir::Plan plan_of(std::vector<ir::Pipeline> pipelines) {
  ir::Plan plan;
  plan.pipelines = std::move(pipelines);
  return plan;
}

inline ir::Plan hetu_c1() {
  return plan_of(
      {pipeline_of(16, 2, {{0, 3, 0, 14}, {4, 7, 15, 29}, {8, 11, 30, 44}, {12, 15, 45, 59}}),
       pipeline_of(16, 2,
                   {{16, 19, 0, 14}, {20, 23, 15, 29}, {24, 27, 30, 44}, {28, 31, 45, 59}})});
}

inline ir::Plan hetu_c2() {
  return plan_of(
      {pipeline_of(33, 1, {{0, 3, 0, 14}, {4, 7, 15, 29}, {8, 11, 30, 44}, {12, 15, 45, 59}}),
       pipeline_of(31, 1,
                   {{16, 19, 0, 15},
                    {20, 23, 16, 31},
                    {24, 27, 32, 47},
                    {28, 29, 48, 55},
                    {30, 30, 56, 59}})});
}

inline ir::Plan hetu_c6() {
  return plan_of(
      {pipeline_of(
           33, 1,
           {{16, 19, 0, 5}, {20, 23, 6, 11}, {24, 27, 12, 17}, {0, 3, 18, 38}, {4, 7, 39, 59}}),
       pipeline_of(31, 1,
                   {{28, 31, 0, 5},
                    {32, 35, 6, 11},
                    {36, 39, 12, 17},
                    {8, 11, 18, 39},
                    {12, 13, 40, 52},
                    {14, 14, 53, 59}})});
}

/// Widths that tensor-parallel degrees up to 8 divide.
inline ir::ModelShape toy_model(int layers) {
  ir::ModelShape model;
  model.name = "toy";
  model.layers = layers;
  model.hidden = 32;
  model.heads = 8;
  model.kv_heads = 8;
  model.head_dim = 4;
  model.ffn = 48;
  model.vocabulary = 64;
  return model;
}
inline constexpr int kToySequence = 16;

/// The plan's stages as build_pipelines() should give them.
inline std::vector<DevicePipeline> stages_of(const ir::Plan& plan) {
  std::vector<DevicePipeline> all;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    DevicePipeline stages;
    for (const ir::Stage& stage : pipeline.stages) {
      std::vector<int> devices;
      for (const DeviceId device : ir::devices_of(stage)) devices.push_back(device.value);
      std::sort(devices.begin(), devices.end());
      stages.stages.push_back(std::move(devices));
    }
    all.push_back(std::move(stages));
  }
  const auto smallest = [](const DevicePipeline& pipeline) {
    int device = pipeline.stages.front().front();
    for (const auto& stage : pipeline.stages) device = std::min(device, stage.front());
    return device;
  };
  std::sort(all.begin(), all.end(), [&](const DevicePipeline& a, const DevicePipeline& b) {
    return smallest(a) < smallest(b);
  });
  return all;
}

}  // namespace orrery::models::testing
