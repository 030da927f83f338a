#include "experiments/validation/a100/kernels.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace orrery::experiments {
namespace {

struct Tile {
  double rows;
  double columns;
  double rate;  ///< Relative to the largest tiles.
};
constexpr std::array<Tile, 3> kTiles = {{{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.9}}};

constexpr double kElement = 2;  ///< fp16.

/// A weight matrix of k x n: forward, gradient of the input, gradient of the weight with its sum
/// over micro-batches.
struct Linear {
  double m;
  double n;
  double k;
};

Seconds forward_of(const Linear& l, const A100Device& device) {
  return gemm_time(l.m, l.n, l.k, 1, device);
}

Seconds backward_of(const Linear& l, double accumulation, const A100Device& device) {
  return gemm_time(l.m, l.k, l.n, 1, device) + gemm_time(l.k, l.n, l.m, 1, device) +
         streaming_time({accumulation * l.n * l.k}, device);
}

}  // namespace

Seconds gemm_time(double m, double n, double k, double batch, const A100Device& device) {
  double waves_flops = HUGE_VAL;
  for (const Tile& tile : kTiles) {
    const double tiles = batch * std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
    const double waves = std::ceil(tiles / kA100Multiprocessors);
    waves_flops = std::min(
        waves_flops, waves * kA100Multiprocessors * 2 * tile.rows * tile.columns * k / tile.rate);
  }
  const Seconds computing = Flops{waves_flops} / (device.peak * device.gemm_share);
  const Bytes moved{kElement * batch * (m * k + k * n + m * n)};
  return std::max(computing, streaming_time(moved, device));
}

Seconds streaming_time(Bytes moved, const A100Device& device) {
  return moved / (device.memory_bandwidth * device.memory_share);
}

A100BlockTime layer_time(const A100Block& block, const A100Device& device) {
  const double tokens = block.samples * block.sequence;
  const double h = block.hidden, t = block.tp;
  const double width = h / block.heads;  // of a head
  const double batch = block.samples * block.heads / t;
  const Linear linears[] = {{tokens, 3 * h / t, h},   // query, key, value
                            {tokens, h, h / t},       // projection
                            {tokens, 4 * h / t, h},   // up
                            {tokens, h, 4 * h / t}};  // down
  const Seconds products[] = {
      gemm_time(block.sequence, block.sequence, width, batch, device),   // scores
      gemm_time(block.sequence, width, block.sequence, batch, device)};  // context
  // Elements of a tensor of full width (divided along the sequence, or whole on each member), of a
  // divided one, and of the attention matrices.
  const double whole = tokens * h / (block.sequence_parallel ? t : 1);
  const double part = tokens * h / t;
  const double scores = batch * block.sequence * block.sequence;

  A100BlockTime time;
  // Softmax reads and writes fp16 (4), dropout also writes a mask (5).
  time.attention_core = products[0] + products[1] + streaming_time({9 * scores}, device);
  // Two norms (4 each) and two bias-dropout-adds (7 each) of full width; bias-GeLU over 4 h (16)
  // and the transposition of the context (4).
  time.forward = time.attention_core + streaming_time({22 * whole + 20 * part}, device);
  // Norms read gradient and input for each of input and weight gradients and write (10 each),
  // dropout reads gradient and mask and writes (5 each), residual sums (6 each), sums of two bias
  // gradients (2 each); GeLU (24), transposition (4), sums of the other biases (14).
  // Softmax (6) and dropout (5) of the attention matrices. Each product has two gradients.
  time.backward = 2 * (products[0] + products[1]) +
                  streaming_time({46 * whole + 42 * part + 11 * scores}, device);
  for (const Linear& linear : linears) {
    time.forward += forward_of(linear, device);
    time.backward += backward_of(linear, block.accumulation_bytes, device);
  }
  return time;
}

A100BlockTime embedding_time(const A100Block& block, const A100Device& device) {
  const double whole = block.samples * block.sequence * block.hidden;
  const double elements = block.vocabulary / block.tp * block.hidden;
  A100BlockTime time;
  // Look-up (4), sum with positions (6), dropout (5).
  time.forward = streaming_time({15 * whole}, device);
  // Dropout (5), scatter (6) into a dense gradient, which is zeroed (2) and added to the sum.
  time.backward = streaming_time({11 * whole + (2 + block.accumulation_bytes) * elements}, device);
  return time;
}

A100BlockTime head_time(const A100Block& block, const A100Device& device) {
  const double tokens = block.samples * block.sequence;
  const Linear projection{tokens, block.vocabulary / block.tp, block.hidden};
  const double whole = tokens * block.hidden;
  const double logits = tokens * projection.n;
  A100BlockTime time;
  // Norm (4); logits to fp32 (6), maximum (4), difference (8), exponential (8), sum (4), division
  // (8).
  time.forward = forward_of(projection, device) + streaming_time({4 * whole + 38 * logits}, device);
  // Norm (10); scaled probabilities (8), back to fp16 (6).
  time.backward = backward_of(projection, block.accumulation_bytes, device) +
                  streaming_time({10 * whole + 14 * logits}, device);
  return time;
}

Seconds optimizer_time(double parameters, const A100Device& device) {
  // Gradient to fp32 (6), unscaled with a check for overflow (8), its norm (4), clipping (8); Adam
  // reads gradient, moments and master copy (16) and writes moments and master copy (12); copy to
  // fp16 (6).
  constexpr double kBytes = 6 + 8 + 4 + 8 + 16 + 12 + 6;
  return streaming_time({kBytes * parameters}, device);
}

}  // namespace orrery::experiments
