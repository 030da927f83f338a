/// The dimensions of a model, as numbers: enough to build it, to price it and to run it. Part of
/// every Program, so that an executor needs nothing else.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/base/units.h"

namespace orrery::ir {

/// fp8 has a scale for each tensor, mxfp8 one for each 32 elements and fp4 (NVFP4) one for each 16
/// [Open Compute Project 2023, Microscaling Formats 1.0].
enum class Dtype { fp32, tf32, fp16, bf16, fp8, fp64, fp4, mxfp8 };

/// Of products alone: tensors are stored and sent in 16 bits, to which products are cast.
constexpr bool of_products(Dtype dtype) {
  return dtype == Dtype::fp8 || dtype == Dtype::mxfp8 || dtype == Dtype::fp4;
}

/// Bytes of an element as stored and sent: tf32 takes four, those of products two.
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
  // Layers that are not all alike.
  int shared_ffn = 0;       ///< Inner width of the expert that all tokens take; 0: there is none.
  int dense_layers = 0;     ///< The first layers have no experts,
  int moe_interval = 0;     ///< and of the others every n-th has; 0: all.
  int dense_ffn = 0;        ///< Inner width of layers without experts among such with; 0: ffn.
  int window = 0;           ///< Tokens that a token attends to; 0: all.
  int global_interval = 0;  ///< Every n-th layer attends to all nevertheless; 0: none.
  int mtp_layers = 0;       ///< Layers behind the others that predict a further token each.
  // Latent attention [DeepSeek-AI 2024, DeepSeek-V2, 2.1]: queries and keys have heads of head_dim
  // and rotary_dim, and are made of few numbers for each token.
  int kv_rank = 0;     ///< Numbers that keys and values are made of; 0: no latent attention.
  int query_rank = 0;  ///< The same of queries; 0: they are made as usual.
  int rotary_dim = 0;  ///< Of a head, beside head_dim; its keys are one for all heads.
  int value_dim = 0;   ///< Width of a head's values; 0: head_dim.
  auto operator<=>(const ModelShape&) const = default;
};

/// Optimizer of the job: what the executor runs.
enum class Optimizer { adam, sgd };

}  // namespace orrery::ir
