/// The dimensions of a model, as numbers: enough to build it, to price it and to run it. Part of
/// every Program, so that an executor needs nothing else.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/base/units.h"

namespace orrery::ir {

enum class Dtype { fp32, tf32, fp16, bf16, fp8, fp64, fp4 };

/// Bytes of an element as stored and sent: tf32 takes four, fp8 and fp4 (in products only) two.
Bytes size_of(Dtype dtype);

enum class BlockKind {
  embedding,    ///< Token (and position) embedding.
  transformer,  ///< Attention and dense feed-forward.
  moe,          ///< Attention and mixture-of-experts feed-forward.
  head,         ///< Final norm, vocabulary projection, loss.
  convolution,  ///< A stage of a convolutional network (Wide-ResNet).
};

enum class Normalization { layer_norm, rms_norm };
enum class Activation { gelu, relu, swiglu };

/// Dimensions of a transformer. A convolutional network leaves them 0 and lives in its blocks.
struct ModelShape {
  std::string name;
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;  ///< Equal to heads without grouped-query attention.
  int head_dim = 0;
  int ffn = 0;  ///< Inner width of one feed-forward (of one expert, for MoE blocks).
  int vocabulary = 0;
  int positions = 0;  ///< Learned position embeddings; 0: rotary or none.
  Normalization normalization = Normalization::rms_norm;
  Activation activation = Activation::swiglu;
  bool causal = true;
  bool biases = false;            ///< Linear layers have bias vectors.
  bool tied_embeddings = false;   ///< Head shares its matrix with the embedding.
  int experts = 0;                ///< Per MoE block; 0: dense.
  int top_k = 0;                  ///< Experts per token.
  double capacity_factor = 1.0;   ///< Tokens per expert relative to an even share.
  double expert_imbalance = 1.0;  ///< Load of the busiest expert relative to the mean.
  auto operator<=>(const ModelShape&) const = default;
};

/// Optimizer of the job: what the executor runs.
enum class Optimizer { adam, sgd };

}  // namespace orrery::ir
