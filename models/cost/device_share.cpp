#include "models/cost/device_share.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "models/base/check.h"

namespace orrery::models {
namespace {

using ir::Dtype;

std::span<const Dtype> alternatives(Dtype dtype) {
  static constexpr std::array kFp4 = {Dtype::fp4, Dtype::fp8, Dtype::bf16, Dtype::fp16,
                                      Dtype::fp32};
  static constexpr std::array kMxfp8 = {Dtype::mxfp8, Dtype::fp8, Dtype::bf16, Dtype::fp16,
                                        Dtype::fp32};
  static constexpr std::array kFp8 = {Dtype::fp8, Dtype::bf16, Dtype::fp16, Dtype::fp32};
  static constexpr std::array kBf16 = {Dtype::bf16, Dtype::fp16, Dtype::fp32};
  static constexpr std::array kFp16 = {Dtype::fp16, Dtype::bf16, Dtype::fp32};
  static constexpr std::array kTf32 = {Dtype::tf32, Dtype::fp32};
  static constexpr std::array kFp32 = {Dtype::fp32};
  static constexpr std::array kFp64 = {Dtype::fp64};
  switch (dtype) {
    case Dtype::fp4:
      return kFp4;
    case Dtype::mxfp8:
      return kMxfp8;
    case Dtype::fp8:
      return kFp8;
    case Dtype::bf16:
      return kBf16;
    case Dtype::fp16:
      return kFp16;
    case Dtype::tf32:
      return kTf32;
    case Dtype::fp32:
      return kFp32;
    case Dtype::fp64:
      return kFp64;
  }
  ORRERY_CHECK(false, "dtype {}", static_cast<int>(dtype));
  return {};
}

}  // namespace

std::optional<Dtype> supported_dtype(const GpuType& gpu, Dtype dtype) {
  for (const Dtype candidate : alternatives(dtype)) {
    const auto peak = gpu.peak.find(candidate);
    if (peak != gpu.peak.end() && peak->second.value > 0) return candidate;
  }
  return std::nullopt;
}

FlopsPerSecond peak_flops(const GpuType& gpu, Dtype dtype) {
  const std::optional<Dtype> supported = supported_dtype(gpu, dtype);
  return supported ? gpu.peak.at(*supported) : FlopsPerSecond{};
}

double shard_count(const ir::Zero& zero, double replicas) {
  if (!zero.shards_optimizer()) return 1;
  const double most = zero.shard_group;
  return std::max(1.0, most > 0 ? std::min(most, replicas) : replicas);
}

double sharded_parameters(const Block& block, int tensor_parallel, const ExpertParts& experts,
                          const ir::Zero& zero, double replicas) {
  const double shards = shard_count(zero, replicas);
  const double expert_shards = shard_count(zero, std::floor(replicas / experts.degree));
  double total = 0;
  for (const Parameter& parameter : block.parameters) {
    double share = static_cast<double>(parameter.elements);
    if (parameter.split_length > 0) {
      const std::int64_t slices = (parameter.split_length + tensor_parallel - 1) / tensor_parallel;
      share *= static_cast<double>(slices) / static_cast<double>(parameter.split_length);
    }
    total += parameter.expert ? share / experts.parts / expert_shards : share / shards;
  }
  return total;
}

double device_parameters(const Block& block, int tensor_parallel, const ExpertParts& experts) {
  return sharded_parameters(block, tensor_parallel, experts, ir::Zero{}, 1);
}

double tied_parameters(const Workload& workload, BlockId first, BlockId last, int tensor_parallel) {
  if (!workload.shape.tied_embeddings || first.value != 0 || last.value + 1 != workload.size()) {
    return 0;
  }
  Block matrix;
  for (const Parameter& parameter : workload.blocks.front().parameters) {
    if (parameter.split_length == workload.shape.vocabulary) matrix.parameters = {parameter};
  }
  return device_parameters(matrix, tensor_parallel, 1);
}

bool is_recomputed(ir::BlockKind kind) {
  return kind != ir::BlockKind::embedding && kind != ir::BlockKind::head;
}

}  // namespace orrery::models
