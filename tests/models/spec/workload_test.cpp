#include "models/spec/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "models/base/ids.h"
#include "tests/worlds/models.h"

namespace orrery::models::workload_test {
namespace {

using worlds::gpt;
using worlds::llama;

using ir::Dtype;

const Block& layer(const Workload& workload) { return workload.block(workload.first_layer()); }

TEST(Workload, StartsWithEmbeddingAndEndsWithHead) {
  const Workload w = build_workload(llama(3, 64, 4, 2, 128, 1000), 16, Dtype::bf16);
  ASSERT_EQ(w.size(), 5);
  EXPECT_EQ(w.blocks.front().kind, ir::BlockKind::embedding);
  EXPECT_EQ(w.blocks.back().kind, ir::BlockKind::head);
  EXPECT_EQ(w.first_layer().value, 1);
  EXPECT_EQ(w.last_layer().value, 3);
  EXPECT_EQ(layer(w).kind, ir::BlockKind::transformer);
}

TEST(Workload, FlopsAreTwiceTheMultiplyAddsOfEveryMatrixProduct) {
  // S 2, H 6, 3 heads of 2, 1 key-value head, F 5, V 7, written out by hand.
  const Workload w = build_workload(llama(1, 6, 3, 1, 5, 7), 2, Dtype::bf16);
  const double query = 2 * 6 * 6, key = 2 * 6 * 2, value = key, output = 2 * 6 * 6;
  const double scores = 3 * 2 * 2 * 2, values = scores, swiglu = 3 * 2 * 6 * 5;
  EXPECT_EQ(layer(w).forward_flops.value,
            2 * (query + key + value + output + scores + values + swiglu));
  EXPECT_EQ(layer(w).attention_flops.value, 2 * (scores + values));
  EXPECT_EQ(w.blocks.back().forward_flops.value, 2.0 * 2 * 6 * 7);
  EXPECT_EQ(w.blocks.front().forward_flops.value, 0);
  EXPECT_EQ(model_flops(w).value,
            3 * (layer(w).forward_flops + w.blocks.back().forward_flops).value);
}

/// DeepSeek-V3 made small: S 16, three layers, of which the first is dense, and one that predicts.
ir::ModelShape latent() {
  ir::ModelShape shape = llama(3, 48, 4, 4, 10, 100);
  shape.head_dim = 8;
  shape.kv_rank = 6;
  shape.query_rank = 5;
  shape.rotary_dim = 4;
  shape.value_dim = 7;
  shape.experts = 8;
  shape.top_k = 2;
  shape.shared_ffn = 20;
  shape.dense_layers = 1;
  shape.dense_ffn = 60;
  shape.mtp_layers = 1;
  return shape;
}

TEST(Workload, LayersMayDiffer) {
  const ir::ModelShape shape = latent();
  const double tokens = 16;
  const Workload w = build_workload(shape, 16, Dtype::bf16);
  ASSERT_EQ(w.size(), 6);
  for (int b = 1; b <= 4; ++b) {
    const Block& block = w.blocks[static_cast<std::size_t>(b)];
    EXPECT_EQ(block.kind, b == 1 ? ir::BlockKind::transformer : ir::BlockKind::moe);
    EXPECT_EQ(block.predicts, b == 4);
    // Every matrix multiplies each token once, an expert's as often as tokens choose it.
    double products = 0;
    for (const Parameter& parameter : block.parameters) {
      if (parameter.name.find("norm") != std::string::npos) continue;
      products += static_cast<double>(parameter.elements) * (parameter.expert ? 2.0 / 8 : 1.0);
    }
    const double attention = 2 * tokens * tokens * 4 * ((8 + 4) + 7);
    EXPECT_EQ(block.attention_flops.value, attention);
    EXPECT_EQ(block.forward_flops.value, 2 * tokens * products + attention);
  }
  EXPECT_EQ(w.blocks[3].parameters.size() + 4, w.blocks[4].parameters.size());
  EXPECT_EQ(w.blocks.back().forward_flops.value, 2 * (2 * tokens * 48 * 100));
  // Q and K of 4 x 12, V and output of 4 x 7, three of 60 or of 20 and of two experts of 10; and
  // the sums of the softmax.
  EXPECT_EQ(w.blocks[1].kept_split.value, 2 * tokens * (2 * 48 + 2 * 28 + 3 * 60) + 4 * tokens * 4);
  EXPECT_EQ(w.blocks[2].kept_split.value,
            2 * tokens * (2 * 48 + 2 * 28 + 3 * (20 + 2 * 10)) + 4 * tokens * 4);
  EXPECT_EQ(w.blocks[2].experts_split.value, 2 * tokens * 3 * 2 * 10);
  ir::ModelShape every_second = shape;
  every_second.dense_layers = 0;
  every_second.moe_interval = 2;
  const Workload turns = build_workload(every_second, 16, Dtype::bf16);
  EXPECT_EQ(turns.blocks[1].kind, ir::BlockKind::transformer);
  EXPECT_EQ(turns.blocks[2].kind, ir::BlockKind::moe);
  EXPECT_EQ(turns.blocks[3].kind, ir::BlockKind::transformer);
  EXPECT_NE(turns.hash, w.hash);
}

TEST(Workload, CausalMaskDoesNotHalveAttention) {
  ir::ModelShape shape = gpt(2, 64, 4, 100, 32);
  const double causal = layer(build_workload(shape, 32, Dtype::fp16)).forward_flops.value;
  shape.causal = false;
  EXPECT_EQ(layer(build_workload(shape, 32, Dtype::fp16)).forward_flops.value, causal);
}

TEST(Workload, GroupedQueriesShrinkKeysAndValuesOnly) {
  const Workload all = build_workload(llama(1, 64, 8, 8, 128, 100), 16, Dtype::bf16);
  const Workload few = build_workload(llama(1, 64, 8, 2, 128, 100), 16, Dtype::bf16);
  const double saved = 2.0 * 64 * (64 - 16);  // two matrices, 6 heads of 8 fewer
  EXPECT_EQ(parameters(all) - parameters(few), static_cast<std::int64_t>(saved));
  EXPECT_EQ((layer(all).forward_flops - layer(few).forward_flops).value, 2 * 16 * saved);
  EXPECT_EQ(layer(all).attention_flops, layer(few).attention_flops);
  EXPECT_EQ((layer(all).kept_split - layer(few).kept_split).value, 2.0 * 16 * 2 * (64 - 16));
}

TEST(Workload, TensorNamesAreUniqueAndSlicesAreWhole) {
  ir::ModelShape moe = llama(1, 64, 8, 2, 96, 1000);
  moe.experts = 4;
  moe.top_k = 2;
  for (const ir::ModelShape& shape : {gpt(1, 64, 8, 1000, 32), llama(1, 64, 8, 2, 96, 1000), moe}) {
    const Workload w = build_workload(shape, 16, Dtype::bf16);
    for (const Block& block : w.blocks) {
      std::set<std::string> names;
      for (const Parameter& p : block.parameters) {
        EXPECT_TRUE(names.insert(p.name).second) << p.name;
        EXPECT_EQ(p.elements % std::max<std::int64_t>(p.split_length, 1), 0) << p.name;
      }
    }
  }
}

TEST(Workload, RowParallelBiasesAndNormsAreReplicated) {
  const Workload w = build_workload(gpt(1, 64, 8, 1000, 32), 16, Dtype::bf16);
  std::set<std::string> replicated;
  for (const Parameter& p : layer(w).parameters)
    if (p.split_length == 0) replicated.insert(p.name);
  EXPECT_EQ(replicated,
            (std::set<std::string>{"norm1.gain", "norm1.bias", "norm2.gain", "norm2.bias",
                                   "attention.output.bias", "mlp.down.bias"}));
}

TEST(Workload, TiedHeadMatrixCountsOnceInTheModelAndFullyInItsOwnStage) {
  ir::ModelShape shape = gpt(2, 64, 4, 1000, 32);
  const Workload tied = build_workload(shape, 16, Dtype::fp16);
  shape.tied_embeddings = false;
  const Workload untied = build_workload(shape, 16, Dtype::fp16);
  EXPECT_EQ(parameters(untied) - parameters(tied), 64 * 1000);
  EXPECT_EQ(parameters(tied, {3}, {3}), parameters(untied, {3}, {3}));
  EXPECT_EQ(parameters(tied, {0}, {2}), parameters(untied, {0}, {2}));
  EXPECT_EQ(parameters(tied, {0}, {2}) + parameters(tied, {3}, {3}), parameters(untied));
  EXPECT_NE(tied.hash, untied.hash);
}

TEST(Workload, BytesFollowTheDtypeButLogitsStayFp32) {
  const ir::ModelShape shape = llama(1, 64, 4, 4, 128, 1000);
  const Workload half = build_workload(shape, 16, Dtype::bf16);
  const Workload full = build_workload(shape, 16, Dtype::fp32);
  EXPECT_EQ(half.blocks[1].output_bytes.value, 2.0 * 16 * 64);
  EXPECT_EQ(full.blocks[1].output_bytes.value, 4.0 * 16 * 64);
  EXPECT_EQ(half.blocks[2].logits.value, 2 * 4.0 * 16 * 1000);
  EXPECT_EQ(half.blocks[2].logits, full.blocks[2].logits);
  EXPECT_EQ(half.blocks[1].attention_kept.value, 4.0 * 16 * 4);
  EXPECT_EQ(half.blocks[1].attention_kept, full.blocks[1].attention_kept);
}

TEST(Workload, NeighborsAgreeOnWhatIsSent) {
  const Workload w = build_workload(gpt(4, 64, 4, 100, 32), 32, Dtype::bf16);
  for (int i = 1; i < w.size(); ++i)
    EXPECT_EQ(w.blocks[i].input_bytes, w.blocks[as_size(i) - 1].output_bytes);
  EXPECT_EQ(w.blocks.back().output_bytes.value, 0);
}

TEST(Workload, ExpertsComputeTopKTimesCapacityRowsAndHoldAllMatrices) {
  ir::ModelShape dense = llama(1, 64, 4, 4, 96, 100);
  ir::ModelShape moe = dense;
  moe.experts = 8;
  moe.top_k = 2;
  moe.capacity_factor = 1.25;
  const Workload d = build_workload(dense, 16, Dtype::bf16);
  const Workload m = build_workload(moe, 16, Dtype::bf16);
  EXPECT_EQ(layer(m).kind, ir::BlockKind::moe);
  EXPECT_TRUE(layer(m).expert_all_to_all);
  const double feed_forward = 2.0 * 16 * 3 * 64 * 96, router = 2.0 * 16 * 64 * 8;
  EXPECT_EQ((layer(m).forward_flops - layer(d).forward_flops).value, 1.5 * feed_forward + router);
  EXPECT_EQ(parameters(m) - parameters(d), 7 * 3 * 64 * 96 + 64 * 8);
  std::int64_t expert = 0;
  for (const Parameter& p : layer(m).parameters) expert += p.expert ? p.elements : 0;
  EXPECT_EQ(expert, 8 * 3 * 64 * 96);
}

TEST(Workload, HashNamesWhatMattersAndIgnoresTheName) {
  ir::ModelShape shape = llama(2, 64, 4, 4, 128, 100);
  const std::string hash = build_workload(shape, 16, Dtype::bf16).hash;
  EXPECT_NE(build_workload(shape, 17, Dtype::bf16).hash, hash);
  EXPECT_NE(build_workload(shape, 16, Dtype::fp16).hash, hash);
  shape.name = "other";
  EXPECT_EQ(build_workload(shape, 16, Dtype::bf16).hash, hash);
  shape.capacity_factor = 2;
  EXPECT_NE(build_workload(shape, 16, Dtype::bf16).hash, hash);
}

TEST(WorkloadDeathTest, ConvolutionalShapeIsNoTransformer) {
  ir::ModelShape shape;
  shape.name = "wide_resnet";
  EXPECT_DEATH(build_workload(shape, 1, Dtype::fp32), "no transformer");
}

}  // namespace
}  // namespace orrery::models::workload_test
