#include "experiments/validation/a100/kernels.h"

#include <gtest/gtest.h>

namespace orrery::experiments::kernels_test {
namespace {

A100Device device() { return {312_TFLOPS, 2000_GBps, 1.0, 1.0}; }

A100Block block() {
  return {.sequence = 2048,
          .hidden = 12288,
          .heads = 96,
          .vocabulary = 51200,
          .samples = 1,
          .tp = 8,
          .sequence_parallel = false,
          .accumulation_bytes = 10};
}

TEST(GemmTime, FullWavesRunAtPeak) {
  // 12 x 9 tiles of 256 x 128: one wave on 108 multiprocessors.
  const double m = 12 * 256, n = 9 * 128, k = 8192;
  EXPECT_DOUBLE_EQ(gemm_time(m, n, k, 1, device()).value, 2 * m * n * k / 312e12);
}

TEST(GemmTime, OneTileMoreTakesAnotherWave) {
  const double n = 9 * 128, k = 8192;
  const double full = gemm_time(12 * 256, n, k, 1, device()).value;
  const double more = gemm_time(12 * 256 + 1, n, k, 1, device()).value;
  EXPECT_GT(more, 1.05 * full);
  EXPECT_LE(more, 2 * full);
}

TEST(GemmTime, ThinProductsAreBoundByMemory) {
  const double bytes = 2.0 * (4096 * 8 + 8 * 4096 + 4096.0 * 4096);
  EXPECT_DOUBLE_EQ(gemm_time(4096, 4096, 8, 1, device()).value, bytes / 2000e9);
}

TEST(GemmTime, ShareDividesTheRate) {
  A100Device half = device();
  half.gemm_share = 0.5;
  EXPECT_DOUBLE_EQ(gemm_time(3072, 1152, 8192, 1, half).value,
                   2 * gemm_time(3072, 1152, 8192, 1, device()).value);
}

TEST(LayerTime, SequenceParallelismDividesTheWholeTensors) {
  A100Block split = block();
  split.sequence_parallel = true;
  const double whole = 22.0 * 2048 * 12288;
  EXPECT_NEAR((layer_time(block(), device()).forward - layer_time(split, device()).forward).value,
              whole * (1 - 1 / 8.0) / 2000e9, 1e-12);
}

TEST(LayerTime, SelectiveRecomputationRepeatsASmallPart) {
  const A100BlockTime time = layer_time(block(), device());
  EXPECT_GT(time.attention_core, Seconds{});
  EXPECT_LT(time.attention_core, 0.4 * time.forward);
}

TEST(LayerTime, BackwardTakesAboutTwiceTheForward) {
  A100Block alone = block();
  alone.accumulation_bytes = 0;
  const A100BlockTime time = layer_time(alone, device());
  EXPECT_GT(time.backward, 1.8 * time.forward);
  EXPECT_LT(time.backward, 2.3 * time.forward);
}

TEST(LayerTime, SumsOfGradientsCostTheirBytes) {
  A100Block alone = block();
  alone.accumulation_bytes = 0;
  const double parameters = 12.0 * 12288 * 12288 / 8;
  EXPECT_NEAR((layer_time(block(), device()).backward - layer_time(alone, device()).backward).value,
              10 * parameters / 2000e9, 1e-12);
}

TEST(HeadTime, GrowsWithTheVocabulary) {
  A100Block wide = block();
  wide.vocabulary *= 2;
  EXPECT_GT(head_time(wide, device()).forward, 1.8 * head_time(block(), device()).forward);
}

TEST(OptimizerTime, MovesSixtyBytesForEachParameter) {
  EXPECT_DOUBLE_EQ(optimizer_time(1e9, device()).value, 60e9 / 2000e9);
}

}  // namespace
}  // namespace orrery::experiments::kernels_test
