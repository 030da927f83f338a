/// Small clusters, workloads and plans for the tests of models/cost.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "models/cost/path_function.h"
#include "models/ir/plan.h"
#include "models/spec/cluster.h"
#include "models/spec/workload.h"

namespace orrery::models::fixtures {

/// Nodes of equal GPUs each: node i has counts[i] devices of type types[i].
inline Cluster make_cluster(std::vector<GpuType> gpus, const std::vector<int>& types,
                            const std::vector<int>& counts) {
  Cluster cluster;
  cluster.gpu_types = std::move(gpus);
  for (std::size_t n = 0; n < counts.size(); ++n) {
    cluster.nodes.emplace_back();
    for (int i = 0; i < counts[n]; ++i) {
      cluster.nodes.back().gpu_types.push_back(types[n]);
      cluster.devices.push_back({{cluster.size()}, {static_cast<std::int32_t>(n)}, i, types[n]});
    }
  }
  return cluster;
}

/// 100 TFLOPS at half efficiency, 1 TB/s at half efficiency, no launch cost: 50e12 and 500e9.
inline GpuType round_gpu(const std::string& name = "round") {
  GpuType gpu;
  gpu.name = name;
  gpu.peak[ir::Dtype::bf16] = 100_TFLOPS;
  gpu.memory = 80_GiB;
  gpu.memory_bandwidth = 1000_GBps;
  gpu.efficiency = 0.5;
  gpu.memory_efficiency = 0.5;
  return gpu;
}

inline std::vector<DeviceId> devices(const std::vector<int>& ids) {
  std::vector<DeviceId> result;
  for (const int id : ids) result.push_back({id});
  return result;
}

/// Devices on one node see `inside`, others `between` (path kind network).
inline PathFunction two_level(const Cluster& cluster, Path inside, Path between) {
  inside.kind = PathClass::nvlink;
  between.kind = PathClass::network;
  return [&cluster, inside, between](DeviceId a, DeviceId b) {
    if (a == b) return Path{};
    return cluster.device(a).node == cluster.device(b).node ? inside : between;
  };
}

inline ir::Group group(const std::vector<int>& ids, int samples = 1) {
  ir::Group result;
  result.devices = devices(ids);
  result.tensor_parallel = static_cast<int>(ids.size());
  result.samples = samples;
  return result;
}

inline ir::Stage stage(int first, int last, ir::Group group,
                       ir::Recompute recompute = ir::Recompute::none) {
  ir::Segment segment;
  segment.first_block = {first};
  segment.last_block = {last};
  segment.groups = {std::move(group)};
  segment.recompute = recompute;
  return {{segment}};
}

/// Numbers of layers and groups of a pipeline; embedding and head stand at its ends.
inline ir::Pipeline pipeline(const std::vector<int>& layers,
                             const std::vector<std::vector<int>>& groups, int micro_batches,
                             ir::Recompute recompute = ir::Recompute::none) {
  ir::Pipeline result;
  result.micro_batches = micro_batches;
  int next = 0;
  for (std::size_t s = 0; s < layers.size(); ++s) {
    const bool last = s + 1 == layers.size();
    const int end = next + layers[s] + (s == 0 ? 1 : 0) + (last ? 1 : 0);
    result.stages.push_back(stage(next, end - 1, group(groups[s]), recompute));
    next = end;
  }
  return result;
}

inline ir::ModelShape llama2_13b() {
  ir::ModelShape shape;
  shape.name = "llama2-13b";
  shape.layers = 40;
  shape.hidden = 5120;
  shape.heads = shape.kv_heads = 40;
  shape.head_dim = 128;
  shape.ffn = 13824;
  shape.vocabulary = 32000;
  return shape;
}

/// GPT with learned positions and feed-forward of four times the width.
inline ir::ModelShape gpt(int layers, int hidden, int heads, int vocabulary, int positions) {
  ir::ModelShape shape;
  shape.name = "gpt";
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = shape.kv_heads = heads;
  shape.head_dim = hidden / heads;
  shape.ffn = 4 * hidden;
  shape.vocabulary = vocabulary;
  shape.positions = positions;
  shape.normalization = ir::Normalization::layer_norm;
  shape.activation = ir::Activation::gelu;
  shape.biases = true;
  return shape;
}

}  // namespace orrery::models::fixtures
