/// Times of blocks by the shapes of their kernels on one GPU type, from what a profile says of its
/// kernels (ir::KernelModel): matrix products by tiles, waves over the multiprocessors and the K
/// loop, in 16, 8 or 4 bits with the casts around them; attention by length and width of a head;
/// grouped products of experts; everything else by the bytes that it moves. Bytes of a kernel are
/// what it must read and write (counted, not measured). Of one GPU and one micro-batch.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "models/base/units.h"
#include "models/ir/model_shape.h"
#include "models/ir/profile.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// What tensor parallelism divides of a weight matrix.
enum class KernelSplit { none, columns, rows };
std::vector<std::pair<KernelSplit, const char*>> enum_names(KernelSplit);

/// A weight matrix of attention, without its bias.
struct KernelProjection {
  double rows = 0;
  double columns = 0;
  KernelSplit split = KernelSplit::none;
};

/// What a layer consists of, whatever it is called: also latent attention, windows, shared experts
/// and state-space scans, which a ModelShape does not say. Widths in elements.
struct KernelLayer {
  int hidden = 0;
  int heads = 0;  ///< 0: no attention.
  std::vector<KernelProjection> projections;
  int query_width = 0;  ///< Of a head, in scores.
  int value_width = 0;  ///< Of a head, in context.
  int kv_heads = 0;
  int ffn = 0;  ///< Dense feed-forward, or a shared expert; 0: none.
  bool gated = true;
  int experts = 0;
  int top_k = 0;
  int expert_ffn = 0;
  double load = 1;       ///< Rows of the busiest expert over an even share.
  int window = 0;        ///< Tokens that attention sees; 0: all.
  bool unfused = false;  ///< Attention as two batches of products with a softmax between them.
  int norms = 2;         ///< With their residual sums.
  double scan = 0;       ///< Elements for each token that a state-space scan reads.
};

/// The layer of this kind that a ModelShape describes: attention with grouped queries or latents,
/// dense or of experts; over all tokens (ModelShape::window is for some layers only).
KernelLayer kernel_layer(const ir::ModelShape& shape, ir::BlockKind kind);
/// A block of that shape, with its window and what it takes to predict a further token.
KernelLayer kernel_layer(const ir::ModelShape& shape, const Block& block);

/// How a block is divided, and what it computes.
struct KernelDegrees {
  std::int64_t sequence = 0;  ///< Tokens.
  int samples = 1;
  int tensor_parallel = 1;
  int context_parallel = 1;
  int expert_parallel = 1;
  /// Of a layer, on this GPU, and samples whose tokens come to them; 0: as many as each of
  /// expert_parallel groups that take `samples` each.
  int experts = 0;
  int expert_samples = 0;
  /// Of the products of linear layers; attention, router and head stay in 16 bits.
  ir::Dtype products = ir::Dtype::bf16;
  bool causal = true;
  bool sequence_parallel = true;  ///< Kernels between products see a part of the sequence each.
  bool accumulates = true;        ///< Gradients are added to a sum in fp32.
  /// Kernels between products are fused, by hand or by a compiler; else each op of them is a kernel
  /// that reads its inputs and writes its output, as PyTorch runs them.
  bool fused = true;
  /// For each kernel of a layer, embedding or head, whose passes take at least the sum: what the
  /// host needs to launch one. 0: they are in a CUDA graph.
  Seconds launch{};
};

struct KernelTimes {
  Seconds forward;
  Seconds backward;                 ///< Without recomputation.
  Seconds backward_weight;          ///< Part of backward that gives gradients of weights.
  Seconds attention;                ///< Part of forward that selective recomputation repeats.
  Seconds experts;                  ///< Part of forward that recomputing experts repeats.
  Seconds experts_backward;         ///< Part of backward of the same kernels.
  Seconds experts_backward_weight;  ///< Part of experts_backward that gives gradients of weights.
  int kernels_forward = 0;
  int kernels_backward = 0;
  KernelTimes& operator+=(const KernelTimes& other);
};

class Kernels {
 public:
  Kernels(ir::KernelModel model, BytesPerSecond memory_bandwidth);

  const ir::KernelModel& model() const { return model_; }
  /// Whether the model knows products in `dtype`; fp16 and bf16 stand for each other.
  bool computes(ir::Dtype dtype) const { return find(dtype) != nullptr; }

  /// `batch` products of m x k by k x n: the longer of moving operands and result once, and of
  /// computing in waves of tiles, one on each multiprocessor, with the best of several tiles; half
  /// of what an unfilled last wave leaves idle is won back along K. [NVIDIA, Matrix Multiplication
  /// Background User's Guide, 2.3, 3.1, 3.2; Osama et al. 2023, Stream-K]
  Seconds product(double m, double n, double k, ir::Dtype dtype, double batch = 1) const;
  /// Kernels that move this many bytes through memory.
  Seconds streaming(double bytes) const;
  /// Both passes of a weight matrix of k x n on m rows: the product and the casts of what goes in
  /// (read in 16 bits, written row- and column-wise); a product for each gradient, casts of the
  /// gradient that comes in, and the sum of weight gradients, which the product's epilogue adds to.
  KernelTimes linear(double m, double n, double k, const KernelDegrees& at, double batch = 1) const;
  /// Fused: 4 s^2 width for each head forward, half of it under a causal mask; 2.5 times that
  /// backward, at 0.8 of the forward rate; short sequences and narrow heads fill tiles less well
  /// [Dao 2023, 4.1; Shah et al. 2024, figures 5 and 6]. Unfused: two batches of products, and 9
  /// bytes for each score forward, 11 backward; a width that is no multiple of 16 bytes keeps the
  /// products from loading whole vectors [Matrix Multiplication Background User's Guide, 2.2].
  KernelTimes attention(const KernelLayer& layer, const KernelDegrees& at) const;
  KernelTimes layer(const KernelLayer& layer, const KernelDegrees& at) const;
  /// Look-up, and the gradient into a dense sum in fp32.
  KernelTimes embedding(int hidden, const KernelDegrees& at) const;
  /// Final norm, projection onto the vocabulary in 16 bits, cross-entropy in fp32 (logits are read
  /// four times and written twice forward, and once each backward).
  KernelTimes head(int hidden, int vocabulary, const KernelDegrees& at) const;
  /// A step over `parameters` elements: the norm reads gradients; Adam reads gradients, moments and
  /// master copy, and writes moments, master copy and weight.
  Seconds optimizer(double parameters, const StateBytes& bytes) const;

 private:
  const ir::KernelModel::Product* find(ir::Dtype dtype) const;
  const ir::KernelModel::Product& rate_of(ir::Dtype dtype) const;
  KernelTimes unfused_attention(const KernelLayer& layer, const KernelDegrees& at) const;

  ir::KernelModel model_;
  BytesPerSecond bandwidth_;
};

}  // namespace orrery::models
