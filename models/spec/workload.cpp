#include "models/spec/workload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "models/base/check.h"
#include "models/base/hash.h"
#include "models/ir/names.h"

namespace orrery::models {
namespace {

using ir::Activation;
using ir::BlockKind;
using ir::ModelShape;
using ir::Normalization;

/// Name of the head's matrix; with tied embeddings it is the embedding's token matrix.
constexpr const char* kOutputMatrix = "output";

/// Sizes of one sample, as doubles: products of them overflow 32 bits.
struct Sizes {
  double tokens;  ///< S
  double hidden;  ///< H
  AttentionWidths widths;
  double latents;  ///< Numbers that queries, keys and values are made of; 0: none.
  double rotated;  ///< Of queries and keys, what is turned by the position.
  double vocab;    ///< V
  double element;  ///< Bytes of one activation.
  double mask;     ///< Bytes of one dropout mask element; 0: no dropout.
  /// Q, K and V.
  double inputs() const { return widths.query + widths.key + widths.value; }
};

/// What layers of one model differ in.
struct Layer {
  bool moe = false;
  int shared = 0;         ///< Inner width of the feed-forward that all tokens take.
  double routed = 0;      ///< Rows that experts compute per token: top_k x capacity.
  double ffn = 0;         ///< Inner width of one expert.
  int window = 0;         ///< Tokens that a token attends to; 0: all.
  bool predicts = false;  ///< Behind the others, for a further token.
  bool operator==(const Layer&) const = default;
};

/// Those that predict further tokens are like the last of the others [DeepSeek-AI 2024, DeepSeek-V3
/// Technical Report, 2.2].
Layer layer_of(const ModelShape& shape, int number) {
  const int like = std::min(number, shape.layers - 1);
  Layer layer;
  const int past = like - shape.dense_layers;
  const int interval = std::max(1, shape.moe_interval);
  layer.moe = shape.experts > 0 && past >= 0 && (past + 1) % interval == 0;
  layer.shared = feed_forward_width(shape, layer.moe ? BlockKind::moe : BlockKind::transformer);
  if (layer.moe) {
    layer.routed = shape.top_k * shape.capacity_factor;
    layer.ffn = shape.ffn;
  }
  const bool attends_to_all = shape.global_interval > 0 && (like + 1) % shape.global_interval == 0;
  layer.window = attends_to_all ? 0 : shape.window;
  layer.predicts = number >= shape.layers;
  return layer;
}

/// LayerNorm models (GPT, BERT, OPT) train with dropout, whose masks are kept with one byte per
/// element [Korthikanti 2022, 4.1]; RMSNorm models (Llama and its kin) train without [Touvron
/// 2023].
Sizes sizes_of(const ModelShape& shape, std::int64_t sequence_length, ir::Dtype dtype) {
  const AttentionWidths widths = attention_widths(shape);
  const bool latent = shape.kv_rank > 0;
  const double rotary = shape.rotary_dim;
  return {.tokens = static_cast<double>(sequence_length),
          .hidden = static_cast<double>(shape.hidden),
          .widths = widths,
          .latents = latent ? shape.query_rank + shape.kv_rank + rotary : 0,
          .rotated = latent                 ? (shape.heads + 1) * rotary
                     : shape.positions == 0 ? widths.query + widths.key
                                            : 0,
          .vocab = static_cast<double>(shape.vocabulary),
          .element = ir::size_of(dtype).value,
          .mask = shape.normalization == Normalization::layer_norm ? 1.0 : 0.0};
}

/// Matrices that widen H to F: up, and the gate of SwiGLU.
int widening_matrices(const ModelShape& shape) {
  return shape.activation == Activation::swiglu ? 2 : 1;
}

void add_norm(const ModelShape& shape, const std::string& name, std::vector<Parameter>& out) {
  out.push_back({.name = name + ".gain", .elements = shape.hidden});
  if (shape.normalization == Normalization::layer_norm)
    out.push_back({.name = name + ".bias", .elements = shape.hidden});
}

/// A matrix and, if the model has biases, its bias vector. `split_length` divides the columns
/// (`column` true: the bias is split too) or the rows (the bias is added once, after the sum).
struct Linear {
  std::string name;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t split_length;
  bool column = true;
  std::int64_t experts = 0;  ///< Copies, one for each expert; 0: no expert's matrix.
};

void add_linear(const ModelShape& shape, const Linear& linear, std::vector<Parameter>& out) {
  const bool expert = linear.experts > 0;
  const std::int64_t copies = expert ? linear.experts : 1;
  out.push_back({.name = linear.name,
                 .elements = copies * linear.rows * linear.columns,
                 .split_length = linear.split_length,
                 .expert = expert});
  if (!shape.biases) return;
  out.push_back({.name = linear.name + ".bias",
                 .elements = copies * linear.columns,
                 .split_length = linear.column ? linear.split_length : 0,
                 .expert = expert});
}

void add_gain(const std::string& name, std::int64_t elements, std::vector<Parameter>& out) {
  out.push_back({.name = name + ".gain", .elements = elements});
}

/// The matrices that make latents are whole on each member of a tensor-parallel group, those that
/// make heads of them are divided [Megatron-LM, multi_latent_attention.py].
void add_latent_attention(const ModelShape& s, std::vector<Parameter>& out) {
  const AttentionWidths widths = attention_widths(s);
  const auto query = static_cast<std::int64_t>(widths.query);
  const auto value = static_cast<std::int64_t>(widths.value);
  if (s.query_rank > 0) {
    add_linear(s, {"attention.query_down", s.hidden, s.query_rank, 0}, out);
    add_gain("attention.query_norm", s.query_rank, out);
    add_linear(s, {"attention.query_up", s.query_rank, query, s.heads}, out);
  } else {
    add_linear(s, {"attention.query", s.hidden, query, s.heads}, out);
  }
  const std::int64_t keys = std::int64_t{s.heads} * s.head_dim;
  add_linear(s, {"attention.kv_down", s.hidden, s.kv_rank + s.rotary_dim, 0}, out);
  add_gain("attention.kv_norm", s.kv_rank, out);
  add_linear(s, {"attention.kv_up", s.kv_rank, keys + value, s.heads}, out);
  add_linear(s, {"attention.output", value, s.hidden, s.heads, false}, out);
}

void add_attention(const ModelShape& s, std::vector<Parameter>& out) {
  add_norm(s, "norm1", out);
  if (s.kv_rank > 0) return add_latent_attention(s, out);
  const std::int64_t query = std::int64_t{s.heads} * s.head_dim;
  const std::int64_t kv = std::int64_t{s.kv_heads} * s.head_dim;
  add_linear(s, {"attention.query", s.hidden, query, s.heads}, out);
  add_linear(s, {"attention.key", s.hidden, kv, s.kv_heads}, out);
  add_linear(s, {"attention.value", s.hidden, kv, s.kv_heads}, out);
  add_linear(s, {"attention.output", query, s.hidden, s.heads, false}, out);
}

void add_feed_forward(const ModelShape& s, const std::string& prefix, int width,
                      std::int64_t experts, std::vector<Parameter>& out) {
  if (s.activation == Activation::swiglu)
    add_linear(s, {prefix + "gate", s.hidden, width, width, true, experts}, out);
  add_linear(s, {prefix + "up", s.hidden, width, width, true, experts}, out);
  add_linear(s, {prefix + "down", width, s.hidden, width, false, experts}, out);
}

void add_feed_forwards(const ModelShape& s, const Layer& layer, std::vector<Parameter>& out) {
  add_norm(s, "norm2", out);
  if (layer.moe) {
    out.push_back({.name = "router", .elements = std::int64_t{s.hidden} * s.experts});
    add_feed_forward(s, "experts.", s.ffn, s.experts, out);
  }
  if (layer.shared > 0) add_feed_forward(s, layer.moe ? "shared." : "mlp.", layer.shared, 0, out);
}

/// Norms of the hidden state and of the next token's embedding, and the matrix that makes one of
/// both. The table of embeddings is the model's.
void add_prediction(const ModelShape& s, std::vector<Parameter>& out) {
  add_norm(s, "predict.norm_hidden", out);
  add_norm(s, "predict.norm_token", out);
  add_linear(s, {"predict.projection", 2 * std::int64_t{s.hidden}, s.hidden, s.hidden}, out);
  add_norm(s, "predict.norm", out);
}

/// Scores Q K^T and their product with V. A causal mask does not halve them: all tokens count, as
/// in Megatron [Narayanan 2021, appendix] and in the planners' papers; so a window counts twice, up
/// to all of them.
double attention_flops(const Sizes& n, const Layer& layer) {
  const double seen = layer.window > 0 ? std::min(n.tokens, 2.0 * layer.window) : n.tokens;
  return 2 * n.tokens * seen * (n.widths.query + n.widths.output);
}

/// Of the feed-forward of all rows that are routed to experts.
double expert_flops(const ModelShape& shape, const Sizes& n, const Layer& layer) {
  return 2 * n.tokens * layer.routed * (widening_matrices(shape) + 1) * n.hidden * layer.ffn;
}

/// 2 x rows x columns per token for every matrix: QKV, output projection, feed-forward, router.
double transformer_flops(const ModelShape& shape, const Sizes& n, const Layer& layer) {
  double projections = n.inputs();  // Columns, of H rows.
  double inside = 0;                // Multiplications that make heads of latents.
  if (shape.kv_rank > 0) {
    const double keys = static_cast<double>(shape.heads) * shape.head_dim;
    inside = shape.kv_rank * (keys + n.widths.value) + shape.query_rank * n.widths.query;
    projections = n.latents + (shape.query_rank > 0 ? 0 : n.widths.query);
  }
  const double products = n.hidden * (projections + n.widths.output) + inside;
  const double matrices = widening_matrices(shape) + 1;
  const double feed_forward = matrices * n.hidden * layer.shared;
  const double router = layer.moe ? n.hidden * shape.experts : 0;
  const double prediction = layer.predicts ? 2 * n.hidden * n.hidden : 0;
  return 2 * n.tokens * (products + feed_forward + router + prediction) +
         attention_flops(n, layer) + expert_flops(shape, n, layer);
}

/// Log-sum-exp of each row of scores in fp32: all that flash attention keeps of them [Dao 2022].
double softmax_statistics(const ModelShape& shape, const Sizes& n) {
  return 4.0 * n.tokens * shape.heads;
}

/// Inside the feed-forward, of `rows` per token.
double kept_inside(const ModelShape& shape, const Sizes& n, double rows, double width) {
  const double inner = shape.activation == Activation::swiglu ? 3
                       : shape.activation == Activation::gelu ? 2
                                                              : 1;
  return n.element * n.tokens * rows * inner * width;
}

/// Rows that went to the experts and came back (2H for each) and the router's fp32 probabilities.
double kept_around_experts(const ModelShape& shape, const Sizes& n, const Layer& layer) {
  if (!layer.moe) return 0;
  return n.tokens * (2 * n.element * layer.routed * n.hidden + 4.0 * shape.experts);
}

/// Tensors that are whole heads or columns of F, so that each member keeps its share. Per token, in
/// elements: Q, K, V and the attention output; inside the feed-forward (for each routed row) what
/// its backward needs: GELU its input and output (2F), ReLU its output alone (F), SwiGLU gate, up
/// and their product (3F). For GPT this is Korthikanti's 24 sbh / t [2022, eq. 2].
double kept_split(const ModelShape& shape, const Sizes& n, const Layer& layer) {
  return n.element * n.tokens * (n.inputs() + n.widths.output) +
         kept_inside(shape, n, layer.routed, layer.ffn) + kept_inside(shape, n, 1, layer.shared) +
         softmax_statistics(shape, n);
}

/// Tensors of full width H. Per token: inputs of both norms, of QKV and of the feed-forward (4H),
/// two dropout masks; for GPT Korthikanti's 10 sbh [2022, eq. 2]. A MoE block keeps more, and so do
/// latents (before and after their norms) and the prediction of a further token (inputs of its
/// norms and of its matrix).
double kept_replicated(const ModelShape& shape, const Sizes& n, const Layer& layer) {
  const double more = 2 * n.latents + (layer.predicts ? 4 * n.hidden : 0);
  return n.tokens * (n.hidden * (4 * n.element + 2 * n.mask) + more * n.element) +
         kept_around_experts(shape, n, layer);
}

/// What the forward pass reads and writes without weights, every op on its own and attention as one
/// fused kernel. Per token, in elements: norms 2 x 2H; QKV reads H, writes Q, K, V; rotation reads
/// and writes Q, K; attention reads Q, K, V, writes its output; projection reads it, writes H;
/// feed-forward reads H, writes, reads and (after the activation) writes and reads F, writes H;
/// residual sums 2 x 3H; dispatch and combine of a MoE block read and write H per routed row;
/// latents are written, normalized and read; a prediction normalizes and joins two inputs.
double transformer_traffic(const ModelShape& shape, const Sizes& n, const Layer& layer) {
  const double wide = widening_matrices(shape);
  const double out = n.widths.output;
  const auto feed_forward = [&](double width) { return 2 * n.hidden + (2 * wide + 2) * width; };
  double elements = 4 * n.hidden + (n.hidden + n.inputs()) + (n.inputs() + out) + (out + n.hidden) +
                    6 * n.hidden + 2 * n.rotated + 4 * n.latents;
  if (layer.shared > 0) elements += feed_forward(layer.shared);
  if (layer.moe) {
    elements += layer.routed * feed_forward(layer.ffn) + n.hidden + 4 * layer.routed * n.hidden;
  }
  if (layer.predicts) elements += 13 * n.hidden;
  return n.element * n.tokens * elements;
}

Block transformer_block(const ModelShape& shape, const Sizes& n, const Layer& layer) {
  Block block;
  block.kind = layer.moe ? BlockKind::moe : BlockKind::transformer;
  block.forward_flops = {transformer_flops(shape, n, layer)};
  block.attention_flops = {attention_flops(n, layer)};
  block.expert_flops = {expert_flops(shape, n, layer)};
  if (layer.predicts) add_prediction(shape, block.parameters);
  add_attention(shape, block.parameters);
  add_feed_forwards(shape, layer, block.parameters);
  block.input_bytes = block.output_bytes = {n.element * n.tokens * n.hidden};
  block.kept_split = {kept_split(shape, n, layer)};
  block.kept_replicated = {kept_replicated(shape, n, layer)};
  block.attention_kept = {softmax_statistics(shape, n)};
  if (layer.moe) {
    block.experts_split = {kept_inside(shape, n, layer.routed, layer.ffn)};
    block.experts_replicated = {kept_around_experts(shape, n, layer)};
  }
  block.memory_traffic = {transformer_traffic(shape, n, layer)};
  block.tensor_collectives = 2;
  block.expert_all_to_all = layer.moe;
  block.window = layer.window;
  block.predicts = layer.predicts;
  return block;
}

/// A look-up: no FLOPs. Keeps the token ids (int64) and the dropout mask [Korthikanti 2022, 4.3].
/// Its one all-reduce is the forward sum over the vocabulary's parts.
Block embedding_block(const ModelShape& shape, const Sizes& n) {
  Block block;
  block.kind = BlockKind::embedding;
  block.parameters.push_back({.name = "token",
                              .elements = std::int64_t{shape.vocabulary} * shape.hidden,
                              .split_length = shape.vocabulary});
  if (shape.positions > 0)
    block.parameters.push_back(
        {.name = "position", .elements = std::int64_t{shape.positions} * shape.hidden});
  const double activation = n.element * n.tokens * n.hidden;
  block.output_bytes = {activation};
  block.kept_replicated = {8 * n.tokens + n.mask * n.tokens * n.hidden};
  block.memory_traffic = {(shape.positions > 0 ? 3 : 2) * activation};
  block.tensor_collectives = 1;
  return block;
}

/// Final norm, projection, loss, for each token that is predicted. Keeps the inputs of norm and
/// projection [Korthikanti 2022, 4.3]. Logits: fp32, and their gradient of the same size. Traffic:
/// norm and projection in the dtype, cast to fp32, one pass of the loss.
Block head_block(const ModelShape& shape, const Sizes& n) {
  Block block;
  block.kind = BlockKind::head;
  const double tokens = (1.0 + shape.mtp_layers) * n.tokens;
  block.forward_flops = {2 * tokens * n.hidden * n.vocab};
  add_norm(shape, "norm", block.parameters);
  block.parameters.push_back({.name = kOutputMatrix,
                              .elements = std::int64_t{shape.vocabulary} * shape.hidden,
                              .split_length = shape.vocabulary});
  const double activation = n.element * n.tokens * n.hidden;
  block.input_bytes = {activation};
  block.kept_replicated = {2 * n.element * tokens * n.hidden};
  block.logits = {2 * 4 * tokens * n.vocab};
  block.memory_traffic = {3 * n.element * tokens * n.hidden +
                          tokens * n.vocab * (2 * n.element + 8)};
  return block;
}

/// Everything that determines the block list; the name does not.
std::string workload_hash(const ModelShape& s, std::int64_t sequence_length, ir::Dtype dtype) {
  std::string text =
      fmt::format("workload 1|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", s.layers,
                  s.hidden, s.heads, s.kv_heads, s.head_dim, s.ffn, s.vocabulary, s.positions,
                  ir::name_of(s.normalization), ir::name_of(s.activation), s.causal, s.biases,
                  s.tied_embeddings, s.experts, s.top_k, s.capacity_factor, s.expert_imbalance,
                  sequence_length, ir::name_of(dtype));
  const std::array further = {s.shared_ffn, s.dense_layers,    s.moe_interval, s.dense_ffn,
                              s.window,     s.global_interval, s.mtp_layers,   s.kv_rank,
                              s.query_rank, s.rotary_dim,      s.value_dim};
  const bool alike = std::all_of(further.begin(), further.end(), [](int one) { return one == 0; });
  if (!alike) text += fmt::format("|{}", fmt::join(further, "|"));
  return content_hash(text);
}

}  // namespace

AttentionWidths attention_widths(const ModelShape& shape) {
  const double heads = shape.heads;
  if (shape.kv_rank > 0) {
    const double score = heads * (shape.head_dim + shape.rotary_dim);
    const double value = heads * (shape.value_dim > 0 ? shape.value_dim : shape.head_dim);
    return {score, score, value, value};
  }
  const double kv = static_cast<double>(shape.kv_heads) * shape.head_dim;
  return {heads * shape.head_dim, kv, kv, heads * shape.head_dim};
}

int feed_forward_width(const ModelShape& shape, BlockKind kind) {
  if (kind == BlockKind::moe) return shape.shared_ffn;
  return shape.experts > 0 && shape.dense_ffn > 0 ? shape.dense_ffn : shape.ffn;
}

BlockId Workload::first_layer() const { return {1}; }

BlockId Workload::last_layer() const { return {size() - 2}; }

std::int64_t parameters(const Block& block) {
  std::int64_t sum = 0;
  for (const Parameter& parameter : block.parameters) sum += parameter.elements;
  return sum;
}

std::int64_t parameters(const Workload& workload, BlockId first, BlockId last) {
  ORRERY_CHECK(first.valid() && last.value < workload.size(), "blocks {} to {} of {}", first.value,
               last.value, workload.size());
  std::int64_t sum = 0;
  for (const BlockId id : ids_from_to(first, last)) sum += parameters(workload.block(id));
  const bool both_ends = first.value == 0 && last.value == workload.size() - 1;
  if (!both_ends || !workload.shape.tied_embeddings) return sum;
  for (const Parameter& parameter : workload.blocks.back().parameters)
    if (parameter.name == kOutputMatrix) sum -= parameter.elements;
  return sum;
}

std::int64_t parameters(const Workload& workload) {
  return parameters(workload, {0}, {workload.size() - 1});
}

Flops model_flops(const Workload& workload) {
  Flops forward;
  for (const Block& block : workload.blocks) forward += block.forward_flops;
  return 3 * forward;
}

Workload build_workload(const ModelShape& shape, std::int64_t sequence_length, ir::Dtype dtype) {
  ORRERY_CHECK(shape.layers > 0 && shape.hidden > 0 && shape.heads > 0 && shape.kv_heads > 0 &&
                   shape.head_dim > 0 && shape.ffn > 0 && shape.vocabulary > 0,
               "'{}' is no transformer", shape.name);
  ORRERY_CHECK(sequence_length > 0, "sequence length {}", sequence_length);
  const Sizes n = sizes_of(shape, sequence_length, dtype);
  Workload workload;
  workload.name = shape.name;
  workload.shape = shape;
  workload.sequence_length = sequence_length;
  workload.dtype = dtype;
  workload.blocks.push_back(embedding_block(shape, n));
  for (int number = 0; number < shape.layers + shape.mtp_layers; ++number) {
    const Layer layer = layer_of(shape, number);
    const bool again = number > 0 && layer == layer_of(shape, number - 1);
    workload.blocks.push_back(again ? workload.blocks.back() : transformer_block(shape, n, layer));
  }
  workload.blocks.push_back(head_block(shape, n));
  workload.hash = workload_hash(shape, sequence_length, dtype);
  return workload;
}

}  // namespace orrery::models
