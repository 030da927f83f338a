// Formulas printed in papers, against the block list.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <string>

#include "models/spec/workload.h"
#include "tests/worlds/models.h"

namespace orrery::models::published_formulas_test {
namespace {

using worlds::gpt;
using worlds::llama;

using ir::Dtype;

struct Random {
  ir::ModelShape shape;
  int sequence_length;
};

Random random_gpt() {
  const int heads = *rc::gen::inRange(1, 65);
  const int head_dim = 8 * *rc::gen::inRange(1, 17);
  const int sequence = *rc::gen::inRange(1, 4097);
  return {
      gpt(*rc::gen::inRange(1, 97), heads * head_dim, heads, *rc::gen::inRange(1, 60000), sequence),
      sequence};
}

const Block& layer(const Workload& workload) { return workload.block(workload.first_layer()); }

// Narayanan et al. 2021, Eq. 3: 96 B s l h^2 (1 + s/(6h) + V/(16 l h)), all layers recomputed: four
// times the layers' forward pass and three times the head's.
RC_GTEST_PROP(Megatron, FlopsWithFullRecomputeAreFourForwardsAndThreeHeads, ()) {
  const Random r = random_gpt();
  const Workload w = build_workload(r.shape, r.sequence_length, Dtype::fp16);
  const double s = r.sequence_length, h = r.shape.hidden, l = r.shape.layers;
  const double published =
      96 * s * l * h * h * (1 + s / (6 * h) + r.shape.vocabulary / (16 * l * h));
  const double ours =
      4 * l * layer(w).forward_flops.value + 3 * w.blocks.back().forward_flops.value;
  RC_ASSERT(std::abs(ours / published - 1) < 1e-12);
}

// Korthikanti et al. 2022, appendix: 72 B l s h^2 (1 + s/(6h) + V/(12 l h)) without recompute.
RC_GTEST_PROP(Megatron, ModelFlopsAreThreeForwards, ()) {
  const Random r = random_gpt();
  const Workload w = build_workload(r.shape, r.sequence_length, Dtype::fp16);
  const double s = r.sequence_length, h = r.shape.hidden, l = r.shape.layers;
  const double published =
      72 * l * s * h * h * (1 + s / (6 * h) + r.shape.vocabulary / (12 * l * h));
  RC_ASSERT(std::abs(model_flops(w).value / published - 1) < 1e-12);
}

// Korthikanti et al. 2022, Eq. 2: s b h (10 + 24/t + 5 a s/(h t)), of which flash attention does
// not keep the last term but four bytes per head and token.
RC_GTEST_PROP(Korthikanti, LayerKeeps10And24TimesSBH, ()) {
  const Random r = random_gpt();
  const Workload w = build_workload(r.shape, r.sequence_length, Dtype::fp16);
  const double sbh = static_cast<double>(r.sequence_length) * r.shape.hidden;
  RC_ASSERT(layer(w).kept_replicated.value == 10 * sbh);
  RC_ASSERT((layer(w).kept_split - layer(w).attention_kept).value == 24 * sbh);
  RC_ASSERT(layer(w).attention_kept.value == 4.0 * r.sequence_length * r.shape.heads);
}

// Section 4.3: the last stage keeps 4 sbh for final norm and projection, the first sbh of dropout
// mask; 4 sbv of fp32 logits (here with their gradient).
RC_GTEST_PROP(Korthikanti, EndsKeepNormProjectionAndMask, ()) {
  const Random r = random_gpt();
  const Workload w = build_workload(r.shape, r.sequence_length, Dtype::fp16);
  const double sbh = static_cast<double>(r.sequence_length) * r.shape.hidden;
  RC_ASSERT(w.blocks.back().kept_replicated.value == 4 * sbh);
  RC_ASSERT(w.blocks.front().kept_replicated.value == sbh + 8.0 * r.sequence_length);
  RC_ASSERT(w.blocks.back().logits.value ==
            2 * 4.0 * r.sequence_length * static_cast<double>(r.shape.vocabulary));
}

// Kaplan et al. 2020, PaLM appendix B: 6N per token plus 12 l h s for attention, N without
// embeddings (and norms, biases).
RC_GTEST_PROP(Palm, ModelFlopsPerTokenAre6NPlusAttention, ()) {
  const int heads = 8 * *rc::gen::inRange(1, 17);
  const int groups = *rc::gen::element(1, 2, 4, 8);
  const int layers = *rc::gen::inRange(1, 100);
  const int sequence = *rc::gen::inRange(1, 8193);
  const ir::ModelShape shape = llama(layers, heads * 64, heads, heads / groups,
                                     *rc::gen::inRange(1, 30000), *rc::gen::inRange(1, 130000));
  const Workload w = build_workload(shape, sequence, Dtype::bf16);
  std::int64_t matrices = 0;  // all parameters but embedding and norms
  for (const Block& block : w.blocks)
    for (const Parameter& p : block.parameters)
      if (p.name != "token" && p.name.find("norm") == std::string::npos) matrices += p.elements;
  const double attention = 12.0 * layers * shape.hidden * sequence;
  const double published = sequence * (6.0 * static_cast<double>(matrices) + attention);
  RC_ASSERT(std::abs(model_flops(w).value / published - 1) < 1e-12);
}

// Llama keeps, per token in 2-byte elements: 4H at full width; Q, K, V, attention output and 3F
// split.
RC_GTEST_PROP(Llama, LayerKeeps8HReplicatedAndHeadsAndFfnSplit, ()) {
  const int heads = 8 * *rc::gen::inRange(1, 17);
  const int kv_heads = heads / *rc::gen::element(1, 2, 4, 8);
  const int ffn = *rc::gen::inRange(1, 30000);
  const int s = *rc::gen::inRange(1, 8193);
  const Workload w =
      build_workload(llama(1, heads * 64, heads, kv_heads, ffn, 100), s, Dtype::bf16);
  const double h = heads * 64;
  RC_ASSERT(layer(w).kept_replicated.value == 8 * s * h);
  RC_ASSERT((layer(w).kept_split - layer(w).attention_kept).value ==
            2 * s * (2 * h + 2.0 * kv_heads * 64 + 3.0 * ffn));
}

}  // namespace
}  // namespace orrery::models::published_formulas_test
