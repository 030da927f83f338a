#include "models/cost/kernels.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "models/base/check.h"
#include "models/ir/names.h"

namespace orrery::models {
namespace {

using ir::Dtype;

/// A tile of the result and its rate relative to the largest one's (assumed).
struct Tile {
  double rows;
  double columns;
  double rate;
};
constexpr std::array<Tile, 5> kTiles = {
    {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.9}, {128, 64, 0.75}, {64, 64, 0.55}}};
/// Steps of the K loop that filling and draining a tile's pipeline cost, in elements of K
/// (assumed).
constexpr double kTileOverhead = 192;

bool is_half(Dtype dtype) { return dtype == Dtype::bf16 || dtype == Dtype::fp16; }

/// Bytes of an operand's element with the scales of its block.
double operand_bytes(Dtype dtype) {
  if (dtype == Dtype::fp8) return 1.0;
  if (dtype == Dtype::mxfp8) return 1 + 1.0 / 32;
  return dtype == Dtype::fp4 ? 0.56 : 2.0;
}

/// Bytes that casting an element moves: read in 16 bits, written row- and column-wise.
double cast_bytes(Dtype dtype) {
  if (dtype == Dtype::fp8) return 4.0;
  if (dtype == Dtype::mxfp8) return 2 + 2 * operand_bytes(dtype);
  return dtype == Dtype::fp4 ? 3.2 : 0.0;
}

double tokens_of(const KernelDegrees& at) {
  return static_cast<double>(at.samples) * static_cast<double>(at.sequence) / at.context_parallel;
}

/// Tokens that kernels of the whole width see.
double own_tokens(const KernelDegrees& at) {
  return tokens_of(at) / (at.sequence_parallel ? at.tensor_parallel : 1);
}

/// Bytes that kernels between products move for each element of what they see.
struct Traffic {
  struct Pass {
    double norm;        ///< With the residual sum before it: 6.
    double activation;  ///< For each element of the feed-forward's width.
    double rotation;    ///< For each element of the queries; keys are counted in.
    int kernels;
  };
  Pass forward, backward;
};

/// Fused: norms read and write once forward, and twice backward with the gradients of their
/// weights; activations read the products' outputs and write one. Op by op: a norm in fp32 is a
/// cast, a square, a mean, two products and a cast; a rotation in fp32 two casts around a product;
/// SwiGLU two kernels forward and three backward; keys and values of fewer heads are copied for
/// each head of the queries. [Zhang, Sennrich 2019 and Su et al. 2021 as PyTorch's nn.RMSNorm and
/// Llama's reference code compute them]
Traffic traffic(const KernelLayer& layer, bool fused) {
  const int wide = layer.gated ? 2 : 1;
  if (fused) return {{4 + 6, 2.0 * (wide + 1), 8, 6}, {8 + 6, 2.0 * (2 * wide + 1), 8, 8}};
  const bool shared = layer.kv_heads < layer.heads;
  const double keys = layer.heads > 0 ? static_cast<double>(layer.kv_heads) / layer.heads : 0;
  const double rotation = 20 * (1 + keys) + (shared ? 4 * (1 + keys) : 0);
  return {{36 + 6, layer.gated ? 10.0 : 4.0, rotation, 26},
          {76 + 6, layer.gated ? 18.0 : 6.0, rotation, 40}};
}

/// Kernels that only move bytes, or take a time of their own.
KernelTimes kernels(Seconds forward, int kernels_forward, Seconds backward, int kernels_backward) {
  KernelTimes times;
  times.forward = forward;
  times.backward = backward;
  times.kernels_forward = kernels_forward;
  times.kernels_backward = kernels_backward;
  return times;
}

/// No faster than the host launches the kernels.
KernelTimes launched(KernelTimes times, Seconds launch) {
  times.forward = std::max(times.forward, times.kernels_forward * launch);
  times.backward = std::max(times.backward, times.kernels_backward * launch);
  return times;
}

}  // namespace

std::vector<std::pair<KernelSplit, const char*>> enum_names(KernelSplit) {
  using enum KernelSplit;
  return {{none, "none"}, {columns, "columns"}, {rows, "rows"}};
}

KernelTimes& KernelTimes::operator+=(const KernelTimes& other) {
  forward += other.forward;
  backward += other.backward;
  backward_weight += other.backward_weight;
  attention += other.attention;
  experts += other.experts;
  experts_backward += other.experts_backward;
  experts_backward_weight += other.experts_backward_weight;
  kernels_forward += other.kernels_forward;
  kernels_backward += other.kernels_backward;
  return *this;
}

KernelLayer kernel_layer(const ir::ModelShape& shape, ir::BlockKind kind) {
  const AttentionWidths widths = attention_widths(shape);
  const bool moe = kind == ir::BlockKind::moe;
  const double hidden = shape.hidden;
  KernelLayer layer;
  layer.hidden = shape.hidden;
  layer.heads = shape.heads;
  if (shape.kv_rank > 0) {
    const double latents = shape.query_rank + shape.kv_rank + shape.rotary_dim;
    const double keys = static_cast<double>(shape.heads) * shape.head_dim;
    layer.projections = {
        {hidden, latents, KernelSplit::none},
        {shape.query_rank > 0 ? shape.query_rank : hidden, widths.query, KernelSplit::columns},
        {static_cast<double>(shape.kv_rank), keys + widths.value, KernelSplit::columns}};
  } else {
    layer.projections = {{hidden, widths.query + widths.key + widths.value, KernelSplit::columns}};
  }
  layer.projections.push_back({widths.output, hidden, KernelSplit::rows});
  layer.query_width = static_cast<int>(widths.query / std::max(1, shape.heads));
  layer.value_width = static_cast<int>(widths.output / std::max(1, shape.heads));
  layer.kv_heads = shape.kv_heads;
  layer.ffn = feed_forward_width(shape, kind);
  layer.gated = shape.activation == ir::Activation::swiglu;
  if (moe) {
    layer.experts = shape.experts;
    layer.top_k = shape.top_k;
    layer.expert_ffn = shape.ffn;
    layer.load = shape.capacity_factor * shape.expert_imbalance;
  }
  return layer;
}

KernelLayer kernel_layer(const ir::ModelShape& shape, const Block& block) {
  KernelLayer layer = kernel_layer(shape, block.kind);
  layer.window = block.window;
  if (block.predicts) {
    const double hidden = shape.hidden;
    layer.projections.push_back({2 * hidden, hidden, KernelSplit::columns});
    layer.norms += 3;
  }
  return layer;
}

Kernels::Kernels(ir::KernelModel model, BytesPerSecond memory_bandwidth)
    : model_(std::move(model)), bandwidth_(memory_bandwidth) {}

const ir::KernelModel::Product* Kernels::find(Dtype dtype) const {
  const ir::KernelModel::Product* alike = nullptr;
  for (const ir::KernelModel::Product& product : model_.products) {
    if (product.dtype == dtype) return &product;
    const bool halves = is_half(product.dtype) && is_half(dtype);
    if (halves || (product.dtype == Dtype::fp8 && dtype == Dtype::mxfp8)) alike = &product;
  }
  return alike;
}

const ir::KernelModel::Product& Kernels::rate_of(Dtype dtype) const {
  const ir::KernelModel::Product* product = find(dtype);
  ORRERY_CHECK(product != nullptr, "kernels of {} have no products in {}", model_.gpu,
               ir::name_of(dtype));
  return *product;
}

Seconds Kernels::product(double m, double n, double k, Dtype dtype, double batch) const {
  const ir::KernelModel::Product& known = rate_of(dtype);
  const FlopsPerSecond rate = known.best * known.share;
  double flops = HUGE_VAL;
  for (const Tile& tile : kTiles) {
    const double tiles = batch * std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
    const double full = tiles / model_.multiprocessors;
    const double waves = (std::ceil(full) + std::max(full, 1.0)) / 2;
    flops = std::min(flops, waves * model_.multiprocessors * 2 * tile.rows * tile.columns *
                                (k + kTileOverhead) / tile.rate);
  }
  const double moved = batch * (operand_bytes(dtype) * (m * k + k * n) + 2 * m * n);
  return std::max(Flops{flops} / rate, streaming(moved)) + model_.gap;
}

Seconds Kernels::streaming(double bytes) const {
  return Bytes{bytes} / (bandwidth_ * model_.memory);
}

KernelTimes Kernels::linear(double m, double n, double k, const KernelDegrees& at,
                            double batch) const {
  KernelTimes times;
  times.forward = product(m, n, k, at.products, batch);
  times.backward_weight = std::max(product(k, n, m, at.products, batch),
                                   streaming((at.accumulates ? 8.0 : 2.0) * batch * n * k));
  times.backward = product(m, k, n, at.products, batch) + times.backward_weight;
  if (const double cast = cast_bytes(at.products); cast > 0) {
    times.forward += streaming(cast * batch * m * k) + 2 * model_.gap;
    times.backward += streaming(cast * batch * m * n) + 2 * model_.gap;
  }
  times.kernels_forward = at.products == Dtype::bf16 || at.products == Dtype::fp16 ? 1 : 3;
  times.kernels_backward = times.kernels_forward + 1;
  return times;
}

KernelTimes Kernels::unfused_attention(const KernelLayer& layer, const KernelDegrees& at) const {
  const double heads = static_cast<double>(at.samples) * layer.heads / at.tensor_parallel;
  const double length = static_cast<double>(at.sequence);
  const double width = layer.query_width;
  const double rate = layer.query_width % 8 == 0 ? 1.0 : model_.unaligned;
  const Seconds products = (product(length, length, width, Dtype::bf16, heads) +
                            product(length, width, length, Dtype::bf16, heads)) /
                           rate;
  const double scores = heads * length * length;
  KernelTimes times;
  times.forward = products + streaming(9 * scores) + model_.gap;
  times.backward = 2 * products + streaming(11 * scores) + model_.gap;
  times.attention = times.forward;
  times.kernels_forward = 3;
  times.kernels_backward = 5;
  return times;
}

KernelTimes Kernels::attention(const KernelLayer& layer, const KernelDegrees& at) const {
  if (layer.heads == 0 || at.sequence == 0) return {};
  if (layer.unfused) return unfused_attention(layer, at);
  const double heads = static_cast<double>(at.samples) * layer.heads / at.tensor_parallel;
  const double length = static_cast<double>(at.sequence);
  double pairs = length * length / at.context_parallel / (at.causal ? 2 : 1);
  if (layer.window > 0) pairs = std::min(pairs, length * layer.window / at.context_parallel);
  const int widths = layer.query_width + layer.value_width;
  const double flops = heads * 2 * widths * pairs;
  const double width = std::min(1.0, 0.6 + 0.4 * (layer.value_width / 128.0));
  const double fills = length / (length + 512.0);
  const FlopsPerSecond rate = rate_of(Dtype::bf16).best * model_.attention * fills * width;
  const double moved =
      2 * tokens_of(at) / at.tensor_parallel *
      (static_cast<double>(layer.heads) * widths + static_cast<double>(layer.kv_heads) * widths);
  KernelTimes times;
  times.forward = std::max(Flops{flops} / rate, streaming(moved)) + model_.gap;
  times.backward =
      std::max(Flops{2.5 * flops} / (0.8 * rate), streaming(2 * moved)) + 2 * model_.gap;
  times.attention = times.forward;
  times.kernels_forward = 1;
  times.kernels_backward = 2;
  return times;
}

KernelTimes Kernels::layer(const KernelLayer& layer, const KernelDegrees& at) const {
  const double tokens = tokens_of(at);
  const double hidden = layer.hidden;
  const double tp = at.tensor_parallel;
  KernelTimes total = attention(layer, at);
  for (const KernelProjection& matrix : layer.projections) {
    const double columns = matrix.columns / (matrix.split == KernelSplit::columns ? tp : 1);
    const double rows = matrix.rows / (matrix.split == KernelSplit::rows ? tp : 1);
    total += linear(tokens, columns, rows, at);
  }
  const Traffic between = traffic(layer, at.fused);
  const int wide = layer.gated ? 2 : 1;
  double part = 0;  // Elements of the feed-forward's width that kernels between products see.
  if (layer.ffn > 0) {
    const double ffn = layer.ffn;
    total += linear(tokens, wide * ffn / tp, hidden, at);
    total += linear(tokens, hidden, ffn / tp, at);
    part += tokens * ffn / tp;
  }
  if (layer.experts > 0) {
    const double ffn = layer.expert_ffn;
    const double even = static_cast<double>(layer.experts) / at.expert_parallel;
    const double local = at.experts > 0 ? at.experts : std::max(1.0, even);
    // Of one expert, from the tokens of all ranks of the group.
    const double all = at.expert_samples > 0 ? static_cast<double>(at.expert_samples) / at.samples
                                             : at.expert_parallel;
    const double rows = tokens * layer.top_k * all / layer.experts * layer.load;
    KernelTimes own = linear(rows, wide * ffn / tp, hidden, at, local);
    own += linear(rows, hidden, ffn / tp, at, local);
    part += rows * local * ffn / tp;
    KernelDegrees router = at;
    router.products = Dtype::bf16;
    own += linear(tokens, layer.experts, hidden, router);
    // Permutation and its inverse with probabilities: each routed row is read and written twice
    // forward and three times backward, times `routing`.
    const double routed = rows * local * hidden / tp * model_.routing;
    own += kernels(streaming(8 * routed), 4, streaming(12 * routed), 4);
    const auto with_activation = [&](Seconds products, const Traffic::Pass& pass) {
      return products + streaming(pass.activation * rows * local * ffn / tp);
    };
    own.experts = with_activation(own.forward, between.forward);
    own.experts_backward = with_activation(own.backward, between.backward);
    own.experts_backward_weight = own.backward_weight;
    total += own;
  }
  const double whole = own_tokens(at) * hidden;
  const double query = tokens * layer.heads * layer.query_width / tp;
  const double scan = tokens * layer.scan / tp;
  const auto pass = [&](const Traffic::Pass& of, double scanned) {
    return streaming(layer.norms * of.norm * whole + of.activation * part + of.rotation * query +
                     scanned * scan) +
           of.kernels * model_.gap;
  };
  total += kernels(pass(between.forward, 12), between.forward.kernels, pass(between.backward, 30),
                   between.backward.kernels);
  return launched(total, at.launch);
}

KernelTimes Kernels::embedding(int hidden, const KernelDegrees& at) const {
  const double whole = own_tokens(at) * hidden;
  KernelTimes times = kernels(streaming(4 * whole), 1, streaming(10 * whole), 1);
  times.backward_weight = times.backward;
  return launched(times, at.launch);
}

KernelTimes Kernels::head(int hidden, int vocabulary, const KernelDegrees& at) const {
  KernelDegrees high = at;
  high.products = Dtype::bf16;
  const double logits = tokens_of(at) * vocabulary / at.tensor_parallel;
  const double whole = own_tokens(at) * hidden;
  KernelTimes times =
      linear(tokens_of(at), static_cast<double>(vocabulary) / at.tensor_parallel, hidden, high);
  times += kernels(streaming(4 * whole + 22 * logits), 6, streaming(10 * whole + 8 * logits), 3);
  return launched(times, at.launch);
}

Seconds Kernels::optimizer(double parameters, const StateBytes& bytes) const {
  return streaming((bytes.gradient + bytes.gradient + bytes.moments + bytes.master + bytes.moments +
                    bytes.master + bytes.weight) *
                   parameters);
}

}  // namespace orrery::models
