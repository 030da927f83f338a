/// Shapes that the workload tests share.
#pragma once
#include "models/ir/model_shape.h"

namespace orrery::models {

/// GPT: LayerNorm, GELU, biases, feed-forward 4H, tied embeddings.
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
  shape.tied_embeddings = true;
  return shape;
}

/// Llama: RMSNorm, SwiGLU, rotary positions, separate head.
inline ir::ModelShape llama(int layers, int hidden, int heads, int kv_heads, int ffn,
                            int vocabulary) {
  ir::ModelShape shape;
  shape.name = "llama";
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = hidden / heads;
  shape.ffn = ffn;
  shape.vocabulary = vocabulary;
  return shape;
}

}  // namespace orrery::models
