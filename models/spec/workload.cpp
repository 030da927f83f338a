#include "models/spec/workload.h"

#include <fmt/format.h>

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
  double tokens;   ///< S
  double hidden;   ///< H
  double query;    ///< heads x head_dim; H in most models.
  double kv;       ///< kv_heads x head_dim
  double ffn;      ///< F
  double vocab;    ///< V
  double element;  ///< Bytes of one activation.
  double routed;   ///< Rows that the feed-forward computes per token: 1, or top_k x capacity.
  double mask;     ///< Bytes of one dropout mask element; 0: no dropout.
};

/// LayerNorm models (GPT, BERT, OPT) train with dropout, whose masks are kept with one byte per
/// element [Korthikanti 2022, 4.1]; RMSNorm models (Llama and its kin) train without [Touvron
/// 2023].
Sizes sizes_of(const ModelShape& shape, std::int64_t sequence_length, ir::Dtype dtype) {
  return {.tokens = static_cast<double>(sequence_length),
          .hidden = static_cast<double>(shape.hidden),
          .query = static_cast<double>(shape.heads) * shape.head_dim,
          .kv = static_cast<double>(shape.kv_heads) * shape.head_dim,
          .ffn = static_cast<double>(shape.ffn),
          .vocab = static_cast<double>(shape.vocabulary),
          .element = ir::size_of(dtype).value,
          .routed = shape.experts > 0 ? shape.top_k * shape.capacity_factor : 1.0,
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

void add_attention(const ModelShape& s, std::vector<Parameter>& out) {
  const std::int64_t query = std::int64_t{s.heads} * s.head_dim;
  const std::int64_t kv = std::int64_t{s.kv_heads} * s.head_dim;
  add_norm(s, "norm1", out);
  add_linear(s, {"attention.query", s.hidden, query, s.heads}, out);
  add_linear(s, {"attention.key", s.hidden, kv, s.kv_heads}, out);
  add_linear(s, {"attention.value", s.hidden, kv, s.kv_heads}, out);
  add_linear(s, {"attention.output", query, s.hidden, s.heads, false}, out);
}

void add_feed_forward(const ModelShape& s, std::vector<Parameter>& out) {
  add_norm(s, "norm2", out);
  const std::string prefix = s.experts > 0 ? "experts." : "mlp.";
  if (s.experts > 0)
    out.push_back({.name = "router", .elements = std::int64_t{s.hidden} * s.experts});
  if (s.activation == Activation::swiglu)
    add_linear(s, {prefix + "gate", s.hidden, s.ffn, s.ffn, true, s.experts}, out);
  add_linear(s, {prefix + "up", s.hidden, s.ffn, s.ffn, true, s.experts}, out);
  add_linear(s, {prefix + "down", s.ffn, s.hidden, s.ffn, false, s.experts}, out);
}

/// Scores Q K^T and their product with V: 2 x S^2 x query each. A causal mask does not halve them:
/// all tokens count, as in Megatron [Narayanan 2021, appendix] and in the planners' papers.
double attention_flops(const Sizes& n) { return 4 * n.tokens * n.tokens * n.query; }

/// Of the feed-forward of all rows that are routed to experts.
double expert_flops(const ModelShape& shape, const Sizes& n) {
  if (shape.experts == 0) return 0;
  return 2 * n.tokens * n.routed * (widening_matrices(shape) + 1) * n.hidden * n.ffn;
}

/// 2 x rows x columns per token for every matrix: QKV, output projection, feed-forward, router.
double transformer_flops(const ModelShape& shape, const Sizes& n) {
  const double projections = 2 * n.tokens * n.hidden * (2 * n.query + 2 * n.kv);
  const double matrices = widening_matrices(shape) + 1;
  const double feed_forward = 2 * n.tokens * n.routed * matrices * n.hidden * n.ffn;
  const double router = 2 * n.tokens * n.hidden * shape.experts;
  return projections + attention_flops(n) + feed_forward + router;
}

/// Log-sum-exp of each row of scores in fp32: all that flash attention keeps of them [Dao 2022].
double softmax_statistics(const ModelShape& shape, const Sizes& n) {
  return 4.0 * n.tokens * shape.heads;
}

/// Inside the feed-forward, of each routed row.
double kept_inside(const ModelShape& shape, const Sizes& n) {
  const double inner = shape.activation == Activation::swiglu ? 3
                       : shape.activation == Activation::gelu ? 2
                                                              : 1;
  return n.element * n.tokens * n.routed * inner * n.ffn;
}

/// Rows that went to the experts and came back (2H for each) and the router's fp32 probabilities.
double kept_around_experts(const ModelShape& shape, const Sizes& n) {
  if (shape.experts == 0) return 0;
  return n.tokens * (2 * n.element * n.routed * n.hidden + 4.0 * shape.experts);
}

/// Tensors that are whole heads or columns of F, so that each member keeps its share. Per token, in
/// elements: Q, K, V and the attention output; inside the feed-forward (for each routed row) what
/// its backward needs: GELU its input and output (2F), ReLU its output alone (F), SwiGLU gate, up
/// and their product (3F). For GPT this is Korthikanti's 24 sbh / t [2022, eq. 2].
double kept_split(const ModelShape& shape, const Sizes& n) {
  return n.element * n.tokens * (2 * n.query + 2 * n.kv) + kept_inside(shape, n) +
         softmax_statistics(shape, n);
}

/// Tensors of full width H. Per token: inputs of both norms, of QKV and of the feed-forward (4H),
/// two dropout masks; for GPT Korthikanti's 10 sbh [2022, eq. 2]. A MoE block keeps more.
double kept_replicated(const ModelShape& shape, const Sizes& n) {
  return n.tokens * n.hidden * (4 * n.element + 2 * n.mask) + kept_around_experts(shape, n);
}

/// What the forward pass reads and writes without weights, every op on its own and attention as one
/// fused kernel. Per token, in elements: norms 2 x 2H; QKV reads H, writes Q, K, V; rotation reads
/// and writes Q, K; attention reads Q, K, V, writes its output; projection reads it, writes H;
/// feed-forward reads H, writes, reads and (after the activation) writes and reads F, writes H;
/// residual sums 2 x 3H; dispatch and combine of a MoE block read and write H per routed row.
double transformer_traffic(const ModelShape& shape, const Sizes& n) {
  const double wide = widening_matrices(shape);
  const double qkv = n.query + 2 * n.kv;
  double elements = 4 * n.hidden + (n.hidden + qkv) + (qkv + n.query) + (n.query + n.hidden) +
                    n.routed * (2 * n.hidden + (2 * wide + 2) * n.ffn) + 6 * n.hidden;
  if (shape.positions == 0) elements += 2 * (n.query + n.kv);
  if (shape.experts > 0) elements += n.hidden + 4 * n.routed * n.hidden;
  return n.element * n.tokens * elements;
}

Block transformer_block(const ModelShape& shape, const Sizes& n) {
  Block block;
  block.kind = shape.experts > 0 ? BlockKind::moe : BlockKind::transformer;
  block.forward_flops = {transformer_flops(shape, n)};
  block.attention_flops = {attention_flops(n)};
  block.expert_flops = {expert_flops(shape, n)};
  add_attention(shape, block.parameters);
  add_feed_forward(shape, block.parameters);
  block.input_bytes = block.output_bytes = {n.element * n.tokens * n.hidden};
  block.kept_split = {kept_split(shape, n)};
  block.kept_replicated = {kept_replicated(shape, n)};
  block.attention_kept = {softmax_statistics(shape, n)};
  if (shape.experts > 0) {
    block.experts_split = {kept_inside(shape, n)};
    block.experts_replicated = {kept_around_experts(shape, n)};
  }
  block.memory_traffic = {transformer_traffic(shape, n)};
  block.tensor_collectives = 2;
  block.expert_all_to_all = shape.experts > 0;
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

/// Final norm, projection, loss. Keeps the inputs of norm and projection [Korthikanti 2022, 4.3].
/// Logits: fp32, and their gradient of the same size. Traffic: norm and projection in the dtype,
/// cast to fp32, one pass of the loss.
Block head_block(const ModelShape& shape, const Sizes& n) {
  Block block;
  block.kind = BlockKind::head;
  block.forward_flops = {2 * n.tokens * n.hidden * n.vocab};
  add_norm(shape, "norm", block.parameters);
  block.parameters.push_back({.name = kOutputMatrix,
                              .elements = std::int64_t{shape.vocabulary} * shape.hidden,
                              .split_length = shape.vocabulary});
  const double activation = n.element * n.tokens * n.hidden;
  block.input_bytes = {activation};
  block.kept_replicated = {2 * activation};
  block.logits = {2 * 4 * n.tokens * n.vocab};
  block.memory_traffic = {3 * activation + n.tokens * n.vocab * (2 * n.element + 8)};
  return block;
}

/// Everything that determines the block list; the name does not.
std::string workload_hash(const ModelShape& s, std::int64_t sequence_length, ir::Dtype dtype) {
  return content_hash(
      fmt::format("workload 1|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", s.layers,
                  s.hidden, s.heads, s.kv_heads, s.head_dim, s.ffn, s.vocabulary, s.positions,
                  ir::name_of(s.normalization), ir::name_of(s.activation), s.causal, s.biases,
                  s.tied_embeddings, s.experts, s.top_k, s.capacity_factor, s.expert_imbalance,
                  sequence_length, ir::name_of(dtype)));
}

}  // namespace

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
  const Block layer = transformer_block(shape, n);
  workload.blocks.insert(workload.blocks.end(), shape.layers, layer);
  workload.blocks.push_back(head_block(shape, n));
  workload.hash = workload_hash(shape, sequence_length, dtype);
  return workload;
}

}  // namespace orrery::models
