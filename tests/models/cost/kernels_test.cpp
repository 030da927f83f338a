// Do times of blocks follow the shapes of their kernels?
#include "models/cost/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "models/cost/pricer.h"
#include "models/ir/names.h"
#include "models/spec/library.h"
#include "tests/worlds/clusters.h"
#include "tests/worlds/models.h"

namespace orrery::models::kernels_test {
namespace {

using ir::Dtype;
using ir::Pass;

constexpr double kRate = 100e12;

/// 100 multiprocessors, 100 TFLOP/s in 16 bits and 200 in 8, all shares 1 and no gaps.
ir::KernelModel round_model() {
  ir::KernelModel model;
  model.gpu = "round";
  model.multiprocessors = 100;
  model.products = {{Dtype::bf16, FlopsPerSecond{kRate}, 1.0},
                    {Dtype::fp8, FlopsPerSecond{2 * kRate}, 1.0}};
  model.attention = model.memory = model.unaligned = model.routing = 1;
  model.gap = {};
  return model;
}

/// Memory so fast that only products take time.
Kernels computing() { return {round_model(), BytesPerSecond{1e30}}; }
/// Products so fast that only bytes take time, of 1 TB/s.
Kernels moving() {
  ir::KernelModel model = round_model();
  for (auto& product : model.products) product.best = FlopsPerSecond{1e40};
  return {model, BytesPerSecond{1e12}};
}

TEST(Product, OneWaveOfTilesTakesTheTimeOfATile) {
  // 10 x 10 tiles of 256 x 128, each with 8192 + 192 steps of K.
  const double tile = 2.0 * 256 * 128 * (8192 + 192) / (kRate / 100);
  EXPECT_DOUBLE_EQ(computing().product(2560, 1280, 8192, Dtype::bf16).value, tile);
  EXPECT_DOUBLE_EQ(computing().product(2560, 1280, 8192, Dtype::fp8).value, tile / 2);
  EXPECT_DOUBLE_EQ(computing().product(2560, 1280, 8192, Dtype::fp16).value, tile);
}

TEST(Product, ATileMoreThanAWaveCostsPartOfAnotherOne) {
  // 101 tiles of 256 x 128: (2 + 1.01) / 2 waves. 202 of 128 x 128, of half the size and at 0.9 of
  // the rate, fill their third wave no better, but it is a shorter one.
  const double full = computing().product(256 * 100, 128, 65536, Dtype::bf16).value;
  const double over = computing().product(256 * 101, 128, 65536, Dtype::bf16).value;
  const double small = (3 + 2.02) / 2 / 2 / 0.9;
  EXPECT_NEAR(over / full, std::min((2 + 1.01) / 2, small), 1e-12);
}

TEST(Product, NothingIsFasterThanPeakAndMemory) {
  const Kernels both(round_model(), BytesPerSecond{1e12});
  for (const auto& [m, n, k] : {std::array{128.0, 128.0, 128.0},
                                {4096.0, 4096.0, 64.0},
                                {1.0, 8192.0, 8192.0},
                                {8192.0, 8192.0, 8192.0}}) {
    const double time = both.product(m, n, k, Dtype::bf16).value;
    EXPECT_GE(time, 2 * m * n * k / kRate);
    EXPECT_GE(time, 2 * (m * k + k * n + m * n) / 1e12);
  }
  // 4096 x 8 by 8 x 4096 in 16 bits: bound by its bytes.
  EXPECT_DOUBLE_EQ(moving().product(4096, 4096, 8, Dtype::bf16).value,
                   2.0 * (4096 * 8 + 8 * 4096 + 4096 * 4096) / 1e12);
}

TEST(Linear, FP8PaysForItsCasts) {
  KernelDegrees at{.sequence = 4096};
  const KernelTimes high = moving().linear(4096, 2048, 1024, at);
  at.products = Dtype::fp8;
  const KernelTimes low = moving().linear(4096, 2048, 1024, at);
  const double operands = 4096.0 * 1024 + 1024.0 * 2048;
  EXPECT_NEAR(low.forward.value - high.forward.value, (4 * 4096.0 * 1024 - operands) / 1e12, 1e-15);
  // Both write the gradient of the weights into a sum of 4 bytes, read and written.
  EXPECT_DOUBLE_EQ(
      high.backward_weight.value,
      std::max(2.0 * (2048 * 4096 + 4096 * 1024 + 2048 * 1024), 8.0 * 2048 * 1024) / 1e12);
}

TEST(Linear, BlocksOfMXFP8HaveScales) {
  // The rate is that of FP8; a byte for 32 elements comes to operands and to what casts write.
  EXPECT_EQ(computing().product(2560, 1280, 8192, Dtype::mxfp8),
            computing().product(2560, 1280, 8192, Dtype::fp8));
  KernelDegrees at{.sequence = 4096, .products = Dtype::fp8};
  const KernelTimes fp8 = moving().linear(4096, 2048, 1024, at);
  at.products = Dtype::mxfp8;
  const KernelTimes mxfp8 = moving().linear(4096, 2048, 1024, at);
  const double scales = (3 * 4096.0 * 1024 + 1024.0 * 2048) / 32;
  EXPECT_NEAR(mxfp8.forward.value - fp8.forward.value, scales / 1e12, 1e-15);
}

TEST(Attention, IsTheFlopsUnderItsMask) {
  KernelLayer layer{.hidden = 1024,
                    .heads = 8,
                    .projections = {},
                    .query_width = 128,
                    .value_width = 128,
                    .kv_heads = 8};
  KernelDegrees at{.sequence = 3584, .samples = 2, .tensor_parallel = 2};
  const double flops = 2 * 8 / 2 * 4.0 * 128 * 3584 * 3584 / 2;
  const double fills = 3584.0 / (3584 + 512);
  const KernelTimes times = computing().attention(layer, at);
  EXPECT_DOUBLE_EQ(times.forward.value, flops / (kRate * fills));
  EXPECT_DOUBLE_EQ(times.backward.value, 2.5 * flops / (0.8 * kRate * fills));
  EXPECT_EQ(times.backward_weight.value, 0);
  at.causal = false;
  EXPECT_DOUBLE_EQ(computing().attention(layer, at).forward.value, 2 * flops / (kRate * fills));
  layer.window = 128;
  EXPECT_DOUBLE_EQ(computing().attention(layer, at).forward.value,
                   flops * 2 * 128 / 3584 / (kRate * fills));
}

TEST(Layer, WithoutTokensTakesNoTimeButItsOwn) {
  const KernelLayer layer{
      .hidden = 1024, .heads = 8, .projections = {}, .query_width = 128, .value_width = 128};
  EXPECT_EQ(computing().layer(layer, {.sequence = 0}).forward.value, 0);
}

TEST(Experts, AreOneBatchOfAsManyRowsAsAllRanksSend) {
  // 64 experts over 8 ranks, 2 for each token: 8 experts here, of 8 x 4096 x 2 / 64 = 1024 rows.
  KernelLayer layer{.hidden = 2048,
                    .projections = {},
                    .gated = true,
                    .experts = 64,
                    .top_k = 2,
                    .expert_ffn = 512,
                    .norms = 0};
  const KernelDegrees at{.sequence = 4096, .expert_parallel = 8};
  const Kernels kernels = computing();
  KernelTimes sum = kernels.linear(1024, 2 * 512, 2048, at, 8);
  sum += kernels.linear(1024, 2048, 512, at, 8);
  sum += kernels.linear(4096, 64, 2048, at);  // the router
  EXPECT_NEAR(kernels.layer(layer, at).forward.value, sum.forward.value, 1e-12);
  layer.load = 2;
  EXPECT_GT(kernels.layer(layer, at).forward.value, 1.5 * sum.forward.value);
}

TEST(Layer, KernelsBoundByMemoryMoveWhatIsCounted) {
  // No products: two norms with residual sums, on a quarter of 1024 tokens of 4096 elements.
  KernelLayer layer{.hidden = 4096, .projections = {}, .gated = false};
  KernelDegrees at{.sequence = 1024, .tensor_parallel = 4};
  EXPECT_DOUBLE_EQ(moving().layer(layer, at).forward.value, 20.0 * 256 * 4096 / 1e12);
  EXPECT_DOUBLE_EQ(moving().layer(layer, at).backward.value, 28.0 * 256 * 4096 / 1e12);
  at.sequence_parallel = false;
  EXPECT_DOUBLE_EQ(moving().layer(layer, at).forward.value, 20.0 * 1024 * 4096 / 1e12);
  EXPECT_DOUBLE_EQ(moving().embedding(4096, at).forward.value, 4.0 * 1024 * 4096 / 1e12);
}

TEST(Layer, OpByOpNormsMoveWhatEachOpReadsAndWrites) {
  // Forward: cast 2 + 4, square 4 + 4, mean 4, product 4 + 4, cast 4 + 2, weight 2 + 2 bytes, and
  // the residual sum's 6; backward: the weight's 12, casts' 6 + 6, the product's 24, the square's
  // 16, the sum of both gradients 12.
  const KernelLayer layer{.hidden = 4096, .projections = {}, .gated = false, .norms = 1};
  const KernelDegrees at{.sequence = 1024, .fused = false};
  EXPECT_DOUBLE_EQ(moving().layer(layer, at).forward.value, (36.0 + 6) * 1024 * 4096 / 1e12);
  EXPECT_DOUBLE_EQ(moving().layer(layer, at).backward.value, (76.0 + 6) * 1024 * 4096 / 1e12);
}

TEST(Layer, OpByOpTakesLongerInEachPart) {
  const KernelDegrees fused{.sequence = 1024};
  KernelDegrees eager = fused;
  eager.fused = false;
  const auto more = [&](const KernelLayer& layer) {
    const KernelTimes a = moving().layer(layer, fused), b = moving().layer(layer, eager);
    return std::pair{1e12 * (b.forward - a.forward).value / 1024,
                     1e12 * (b.backward - a.backward).value / 1024};
  };
  const KernelLayer feed{.hidden = 512, .projections = {}, .ffn = 1024, .gated = true, .norms = 0};
  EXPECT_NEAR(more(feed).first, (10 - 6) * 1024.0, 1e-6);
  EXPECT_NEAR(more(feed).second, (18 - 10) * 1024.0, 1e-6);
  const KernelLayer attention{.hidden = 512,
                              .heads = 8,
                              .projections = {},
                              .query_width = 64,
                              .value_width = 64,
                              .kv_heads = 2,
                              .norms = 0};
  EXPECT_NEAR(more(attention).first, (20 * 1.25 + 4 * 1.25 - 8) * 512, 1e-6);
}

TEST(Layer, WithoutGraphsTakesWhatTheHostLaunches) {
  // Attention 1 and 2, two matrices of attention and two of the feed-forward 1 and 2 each, 6 and 8
  // between them.
  const KernelLayer layer =
      kernel_layer(worlds::gpt(1, 1024, 8, 1000, 64), ir::BlockKind::transformer);
  KernelDegrees at{.sequence = 64};
  const Kernels fast{round_model(), BytesPerSecond{1e30}};
  const KernelTimes graph = fast.layer(layer, at);
  EXPECT_EQ(graph.kernels_forward, 1 + 4 + 6);
  EXPECT_EQ(graph.kernels_backward, 2 + 8 + 8);
  at.launch = Seconds{1};
  EXPECT_DOUBLE_EQ(fast.layer(layer, at).forward.value, 11);
  EXPECT_DOUBLE_EQ(fast.layer(layer, at).backward.value, 18);
  at.launch = Seconds{1e-12};
  EXPECT_EQ(fast.layer(layer, at).forward, graph.forward);
}

TEST(Layer, ComputesWhatItsBlockMultiplies) {
  ir::ModelShape shape = worlds::llama(3, 4096, 32, 32, 1024, 4096);
  shape.head_dim = 64;
  shape.kv_rank = 512;
  shape.query_rank = 1024;
  shape.rotary_dim = 64;
  shape.experts = 64;
  shape.top_k = 4;
  shape.shared_ffn = 2048;
  shape.dense_layers = 1;
  shape.dense_ffn = 8192;
  shape.mtp_layers = 1;
  const Workload workload = build_workload(shape, 4096, Dtype::bf16);
  for (int b = 1; b <= 4; ++b) {
    const Block& block = workload.block({b});
    double multiplied = 0;
    const KernelLayer layer = kernel_layer(shape, block);
    for (const KernelProjection& matrix : layer.projections) {
      multiplied += matrix.rows * matrix.columns;
    }
    multiplied += 3.0 * layer.hidden * layer.ffn;
    multiplied += 3.0 * layer.hidden * layer.top_k * layer.expert_ffn;
    multiplied += static_cast<double>(layer.hidden) * layer.experts;
    EXPECT_EQ(2 * 4096 * multiplied, (block.forward_flops - block.attention_flops).value) << b;
    EXPECT_EQ(layer.heads * (layer.query_width + layer.value_width) * 2.0 * 4096 * 4096,
              block.attention_flops.value);
  }
}

TEST(Experts, AreThePartOfALayerThatTheirRecomputationRepeats) {
  ir::ModelShape shape = worlds::gpt(1, 1024, 8, 1000, 64);
  shape.experts = 16;
  shape.top_k = 2;
  const KernelLayer with = kernel_layer(shape, ir::BlockKind::moe);
  KernelLayer without = with;
  without.experts = 0;
  const KernelDegrees at{.sequence = 2048, .expert_parallel = 4};
  for (const Kernels& kernels : {computing(), moving()}) {
    const KernelTimes times = kernels.layer(with, at);
    EXPECT_GT(times.experts.value, 0);
    EXPECT_NEAR(times.experts.value, times.forward.value - kernels.layer(without, at).forward.value,
                1e-9 * times.forward.value);
  }
}

TEST(Optimizer, MovesStatesAndReadsGradientsTwice) {
  const StateBytes bytes{.weight = 2, .gradient = 4, .master = 4, .moments = 8};
  EXPECT_DOUBLE_EQ(moving().optimizer(1e9, bytes).value, (2 * 4 + 2 * 8 + 2 * 4 + 2) * 1e9 / 1e12);
}

/// The library's kernels of today and what an entry of theirs belongs to.
class Today : public ::testing::Test {
 protected:
  Today() : library_(load_library(default_library_root(), problems_)) {
    profile_ = load_profile(library_.profiles.at("today"), problems_);
    problems_.raise();
  }
  Kernels kernels(const std::string& gpu) const {
    for (const ir::KernelModel& model : profile_.kernels) {
      if (model.gpu == gpu) return {model, library_.gpus.at(gpu).memory_bandwidth};
    }
    throw std::out_of_range(gpu);
  }

  config::Diagnostics problems_;
  Library library_;
  ir::Profile profile_;
};

TEST_F(Today, BloomIsFasterAtHidden13824ThanItsFlopsSay) {
  // BLOOM's step fell by a quarter when its hidden size went from 14400 to 13824, 8 % in FLOPs:
  // heads of 150 elements are no whole vectors of 16 bytes, heads of 144 are. With full
  // recomputation, whose forward runs twice.
  const auto step = [&](const Kernels& kernels, int hidden) {
    const int width = hidden / 96;
    const KernelLayer layer{.hidden = hidden,
                            .heads = 96,
                            .projections = {{1.0 * hidden, 3.0 * hidden, KernelSplit::columns},
                                            {1.0 * hidden, 1.0 * hidden, KernelSplit::rows}},
                            .query_width = width,
                            .value_width = width,
                            .kv_heads = 96,
                            .ffn = 4 * hidden,
                            .gated = false,
                            .unfused = true};
    const KernelTimes times =
        kernels.layer(layer, {.sequence = 2048, .tensor_parallel = 8, .sequence_parallel = false});
    return (2 * times.forward + times.backward).value;
  };
  const Kernels a100 = kernels("A100-80GB");
  const double ratio = step(a100, 13824) / step(a100, 14400);
  EXPECT_LT(ratio, 0.87);
  EXPECT_GT(ratio, 0.70);
  ir::KernelModel whole = a100.model();
  whole.unaligned = 1;
  const Kernels blind(whole, library_.gpus.at("A100-80GB").memory_bandwidth);
  EXPECT_GT(step(blind, 13824) / step(blind, 14400), 0.88) << "tiles alone explain little of it";
}

TEST_F(Today, EveryTypeIsInTheLibraryAndComputesInItsNumbers) {
  for (const ir::KernelModel& model : profile_.kernels) {
    ASSERT_TRUE(library_.gpus.contains(model.gpu)) << model.gpu;
    const GpuType& gpu = library_.gpus.at(model.gpu);
    for (const ir::KernelModel::Product& product : model.products) {
      const Dtype listed = gpu.peak.contains(product.dtype) ? product.dtype : Dtype::fp16;
      ASSERT_TRUE(gpu.peak.contains(listed)) << model.gpu << " " << ir::name_of(product.dtype);
      EXPECT_LE(product.best, gpu.peak.at(listed)) << model.gpu;
    }
  }
}

/// A model of the library's kernels on one H100.
class PricedByKernels : public Today {
 protected:
  PricedByKernels()
      : cluster_(worlds::bare_cluster({{0, 0, 0, 0}}, {library_.gpus.at("H100-80GB")})),
        workload_(build_workload(worlds::llama2_13b(), 4096, Dtype::bf16)) {}
  Seconds price(BlockQuery query) const {
    return Pricer(cluster_, workload_, job_, profile_).block(query);
  }
  static BlockQuery layer(Pass pass) {
    BlockQuery query;
    query.block = {1};
    query.pass = pass;
    query.tensor_parallel = 2;
    return query;
  }
  KernelTimes expected(Dtype products) const {
    return kernels("H100-80GB")
        .layer(kernel_layer(workload_.shape, ir::BlockKind::transformer),
               {.sequence = 4096, .tensor_parallel = 2, .products = products});
  }

  Cluster cluster_;
  Workload workload_;
  Job job_;
};

TEST_F(PricedByKernels, PassesAndTheirHalvesAreThoseOfTheKernels) {
  const KernelTimes times = expected(Dtype::bf16);
  EXPECT_EQ(price(layer(Pass::forward)), times.forward);
  EXPECT_EQ(price(layer(Pass::backward)), times.backward);
  EXPECT_EQ(price(layer(Pass::backward_weight)), times.backward_weight);
  EXPECT_DOUBLE_EQ((price(layer(Pass::backward_weight)) + price(layer(Pass::backward_input))).value,
                   times.backward.value);
  BlockQuery again = layer(Pass::backward);
  again.recompute = ir::Recompute::selective;
  EXPECT_EQ(price(again), times.backward + times.attention);
  again.recompute = ir::Recompute::full;
  EXPECT_EQ(price(again), times.backward + times.forward);
}

TEST_F(PricedByKernels, WithoutGraphsTheHostMayBeTheSlowerOne) {
  cluster_.gpu_types[0].launch = Seconds{0.5};
  EXPECT_EQ(price(layer(Pass::forward)), expected(Dtype::bf16).forward);
  job_.cuda_graphs = false;
  EXPECT_EQ(price(layer(Pass::forward)), 11 * Seconds{0.5});
}

TEST_F(PricedByKernels, AMeasuredBlockComesFirstAndUsedEntriesSayWhich) {
  const Pricer by_kernels(cluster_, workload_, job_, profile_);
  by_kernels.block(layer(Pass::forward));
  EXPECT_EQ(by_kernels.take_recent_entries(),
            std::vector<std::string>{
                "kernels: H100-80GB transformer forward tp 2 samples 1 sequence 4096 bf16"});
  ir::BlockTime measured;
  measured.gpu = "H100-80GB";
  measured.tensor_parallel = 2;
  measured.sequence_length = 4096;
  measured.time = Seconds{7};
  profile_.block_times = {measured};
  EXPECT_EQ(price(layer(Pass::forward)), Seconds{7});
  EXPECT_EQ(price(layer(Pass::backward)), expected(Dtype::bf16).backward);
  profile_.kernels.clear();
  const Pricer roofline(cluster_, workload_, job_, profile_);
  roofline.block(layer(Pass::backward));
  EXPECT_TRUE(roofline.take_recent_entries().front().starts_with("roofline: "));
}

TEST_F(PricedByKernels, OnlyLinearLayersAreComputedInFP8) {
  BlockQuery head;
  head.block = {workload_.size() - 1};
  const Seconds before = price(head);
  workload_ = build_workload(worlds::llama2_13b(), 4096, Dtype::fp8);
  EXPECT_EQ(price(layer(Pass::forward)), expected(Dtype::fp8).forward);
  EXPECT_EQ(price(head), before);
}

TEST_F(PricedByKernels, NumbersThatKernelsDoNotKnowAreLeftToTheRoofline) {
  workload_ = build_workload(worlds::llama2_13b(), 4096, Dtype::fp32);
  const Pricer pricer(cluster_, workload_, job_, profile_);
  pricer.block(layer(Pass::forward));
  EXPECT_TRUE(pricer.take_recent_entries().front().starts_with("roofline: "));
}

}  // namespace
}  // namespace orrery::models::kernels_test
