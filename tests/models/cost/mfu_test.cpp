#include "models/cost/mfu.h"

#include <gtest/gtest.h>

#include "tests/worlds/clusters.h"
#include "tests/worlds/models.h"
#include "tests/worlds/plans.h"

namespace orrery::models::mfu_test {
namespace {

/// The trillion-parameter model of Narayanan et al. 2021: 128 layers, 25600 wide, 160 heads,
/// 2048 tokens, vocabulary 51200, batch 3072, 3072 A100 (TP 8, PP 64, DP 6), full recompute.
struct Trillion {
  static constexpr double kLayers = 128, kHidden = 25600, kTokens = 2048, kVocabulary = 51200;
  static constexpr double kBatch = 3072;
  Workload workload =
      build_workload(worlds::gpt(128, 25600, 160, 51200, 2048), 2048, ir::Dtype::bf16);
  static ir::Plan plan(ir::Recompute recompute) {
    ir::Plan plan;
    for (int replica = 0; replica < 6; ++replica) {
      std::vector<std::vector<int>> groups;
      for (int s = 0; s < 64; ++s) {
        groups.emplace_back();
        for (int i = 0; i < 8; ++i) groups.back().push_back((replica * 64 + s) * 8 + i);
      }
      plan.pipelines.push_back(worlds::pipeline(std::vector<int>(64, 2), groups, 512, recompute));
    }
    return plan;
  }
  /// factor x B s l h^2 (1 + s/6h + V/(head h l))
  static double flops(double factor, double head) {
    return factor * kBatch * kTokens * kLayers * kHidden * kHidden *
           (1 + kTokens / (6 * kHidden) + kVocabulary / (head * kLayers * kHidden));
  }
};

TEST(Mfu, ModelFlopsAreTheFormulaOfKorthikanti) {
  const Trillion model;
  const double flops = step_model_flops(Trillion::plan(ir::Recompute::none), model.workload).value;
  EXPECT_NEAR(flops / Trillion::flops(72, 12), 1, 1e-12);
}

TEST(Mfu, HardwareFlopsUnderFullRecomputeAreEquation3OfMegatron) {
  const Trillion model;
  const double flops =
      step_hardware_flops(Trillion::plan(ir::Recompute::full), model.workload).value;
  EXPECT_NEAR(flops / Trillion::flops(96, 16), 1, 1e-12);
}

TEST(Mfu, TrillionParameterRunReachesThePublishedHalfOfPeak) {
  // The abstract: 502 PFLOP/s on 3072 A100, 163 TFLOP/s per GPU, 52 % of peak.
  const Trillion model;
  GpuType a100;
  a100.peak[ir::Dtype::bf16] = 312_TFLOPS;
  const Cluster cluster = worlds::bare_cluster(std::vector(384, std::vector(8, 0)), {a100});
  const ir::Plan plan = Trillion::plan(ir::Recompute::full);
  const Flops hardware = step_hardware_flops(plan, model.workload);
  const Seconds time = hardware / FlopsPerSecond{502e15};
  const FlopsPerSecond peak = total_peak(plan, cluster, ir::Dtype::bf16);
  EXPECT_NEAR(utilization(hardware, time, peak), 0.52, 0.005);
  EXPECT_NEAR(utilization(step_model_flops(plan, model.workload), time, peak), 0.393, 0.001);
}

TEST(Mfu, SelectiveRecomputeCountsAttentionOnly) {
  const Trillion model;
  const double extra =
      step_hardware_flops(Trillion::plan(ir::Recompute::selective), model.workload).value -
      step_model_flops(Trillion::plan(ir::Recompute::selective), model.workload).value;
  EXPECT_NEAR(extra / (Trillion::kBatch * 128 * 4 * 2048.0 * 2048 * 25600), 1, 1e-9);
}

TEST(Mfu, RecomputedExpertsCountTheirProducts) {
  ir::ModelShape shape = worlds::gpt(4, 512, 8, 1000, 256);
  shape.experts = 8;
  shape.top_k = 2;
  const Workload workload = build_workload(shape, 256, ir::Dtype::bf16);
  ir::Plan plan;
  plan.pipelines = {worlds::pipeline({4}, {{0}}, 1)};
  plan.pipelines[0].stages[0].segments[0].recompute = ir::Recompute::experts;
  const double samples = static_cast<double>(ir::global_batch(plan));
  const double matrices = shape.activation == ir::Activation::swiglu ? 3 : 2;
  const double extra =
      step_hardware_flops(plan, workload).value - step_model_flops(plan, workload).value;
  EXPECT_NEAR(
      extra / (samples * 4 * 2 * matrices * 256 * 2 * shape.capacity_factor * 512.0 * shape.ffn), 1,
      1e-9);
}

TEST(Mfu, SubstituteDtypeGivesThePeak) {
  GpuType v100;
  v100.peak[ir::Dtype::fp16] = 125_TFLOPS;
  v100.peak[ir::Dtype::fp32] = 15_TFLOPS;
  const Cluster cluster = worlds::bare_cluster({{0, 0}}, {v100});
  ir::Plan plan;
  plan.pipelines = {worlds::pipeline({1}, {{0, 1}}, 1)};
  EXPECT_EQ(total_peak(plan, cluster, ir::Dtype::bf16), 250_TFLOPS);
}

TEST(Price, IsThatOfAllDevicesForAMillionTokens) {
  GpuType gpu = worlds::round_gpu();
  gpu.price = DollarsPerSecond{0.001};
  Cluster cluster = worlds::bare_cluster({{0, 0}}, {gpu});
  Workload workload;
  workload.sequence_length = 1000;
  ir::Plan plan;
  plan.pipelines = {worlds::pipeline({1}, {{0, 1}}, 10)};  // 10 samples, 10,000 tokens
  EXPECT_DOUBLE_EQ(tokens_per_second(plan, workload, Seconds{5}), 2000);
  const auto dollars = dollars_per_million_tokens(plan, cluster, workload, Seconds{5});
  ASSERT_TRUE(dollars.has_value());
  EXPECT_DOUBLE_EQ(dollars->value, 500 * 0.002);
  cluster.gpu_types[0].price.reset();
  EXPECT_FALSE(dollars_per_million_tokens(plan, cluster, workload, Seconds{5}).has_value());
}

TEST(Energy, IsThatOfTheDevicesOfThePlanForOneToken) {
  GpuType gpu = worlds::round_gpu();
  gpu.power = Watts{400};
  Cluster cluster = worlds::bare_cluster({{0, 0, 0}}, {gpu});
  Workload workload;
  workload.sequence_length = 1000;
  ir::Plan plan;
  plan.pipelines = {worlds::pipeline({1}, {{0, 1}}, 10)};  // 2 of 3 GPUs, 2,000 tokens/s
  const auto joules = joules_per_token(plan, cluster, workload, Seconds{5});
  ASSERT_TRUE(joules.has_value());
  EXPECT_DOUBLE_EQ(joules->value, 800.0 / 2000);
  cluster.gpu_types[0].power.reset();
  EXPECT_FALSE(joules_per_token(plan, cluster, workload, Seconds{5}).has_value());
}

}  // namespace
}  // namespace orrery::models::mfu_test
