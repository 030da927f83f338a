/// Bodies of the kernels between the batched matrix products of attention. Scores are materialized
/// for some (sample, head) pairs at a time, called items: item i is pair first_item + i, pairs
/// counted sample by sample. Written for host and device as those of kernels.h.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "executor/compute/backend.h"
#include "executor/cuda/lanes.h"
#include "executor/cuda/numbers.h"

namespace orrery::executor::kernels {

/// Sizes of an AttentionShape as the kernels need them.
struct AttentionSizes {
  std::size_t tokens, heads, kv_heads, dim, group, first_head, first_kv;
  bool causal;
  ORRERY_HD std::size_t kv_head(std::size_t head) const {
    return (first_head + head) / group - first_kv;
  }
};

/// Where the matrices of item i start, for the batched products.
template <class T>
struct ItemPointers {
  AttentionSizes sizes;
  std::size_t first_item;
  const T* base;     ///< rows x heads x dim, or rows x kv_heads x dim.
  bool of_kv_heads;  ///< Of the head that the item's query head uses.
  const void** out;
  ORRERY_HD void operator()(std::size_t i) const {
    const std::size_t sample = (first_item + i) / sizes.heads,
                      head = (first_item + i) % sizes.heads;
    const std::size_t heads = of_kv_heads ? sizes.kv_heads : sizes.heads;
    const std::size_t own = of_kv_heads ? sizes.kv_head(head) : head;
    out[i] = base + (sample * sizes.tokens * heads + own) * sizes.dim;
  }
};

/// Where the scores of item i start.
template <class T>
struct ScorePointers {
  std::size_t elements;  ///< Of an item.
  const T* base;
  const void** out;
  ORRERY_HD void operator()(std::size_t i) const { out[i] = base + i * elements; }
};

/// Row r is query r % tokens of item r / tokens: scores to probabilities over the keys that it
/// sees, 0 for the others. `probabilities` may be `scores`.
template <class T>
struct SoftmaxRow {
  AttentionSizes sizes;
  std::size_t first_item;
  const WideOf<T>* scores;
  T* probabilities;
  WideOf<T>* log_sum;
  template <class Lanes>
  ORRERY_HD void operator()(std::size_t row, const Lanes& lanes) const {
    using C = WideOf<T>;
    const std::size_t tokens = sizes.tokens;
    const std::size_t seen = sizes.causal ? row % tokens + 1 : tokens;
    const C* in = scores + row * tokens;
    T* out = probabilities + row * tokens;
    const C largest =
        lanes.maximum(-static_cast<C>(HUGE_VAL), seen, [=](std::size_t j) { return in[j]; });
    const C sum = lanes.sum(C(0), seen, [=](std::size_t j) { return std::exp(in[j] - largest); });
    if (lanes.first()) log_sum[first_item * tokens + row] = largest + std::log(sum);
    lanes.each(tokens, [=](std::size_t j) {
      out[j] = store<T>(j < seen ? std::exp(in[j] - largest) / sum : C(0));
    });
  }
};

/// Row as above: scores and gradients of the probabilities to probabilities and gradients of the
/// unscaled scores, p (dp - sum(d_o o)) x scale. Outputs may be the inputs.
template <class T>
struct SoftmaxBackwardRow {
  AttentionSizes sizes;
  std::size_t first_item;
  const WideOf<T>*scores, *d_probabilities, *log_sum;
  const T *o, *d_o;
  WideOf<T> scale;
  T *probabilities, *d_scores;
  template <class Lanes>
  ORRERY_HD void operator()(std::size_t row, const Lanes& lanes) const {
    using C = WideOf<T>;
    const std::size_t tokens = sizes.tokens, query = row % tokens;
    const std::size_t item = first_item + row / tokens;
    const std::size_t seen = sizes.causal ? query + 1 : tokens;
    const std::size_t head_at =
        ((item / sizes.heads * tokens + query) * sizes.heads + item % sizes.heads) * sizes.dim;
    const T *y = o + head_at, *g = d_o + head_at;
    const C mean =
        lanes.sum(C(0), sizes.dim, [=](std::size_t e) { return load(g[e]) * load(y[e]); });
    const C total = log_sum[item * tokens + query], factor = scale;
    const C *in = scores + row * tokens, *d_in = d_probabilities + row * tokens;
    T *p_out = probabilities + row * tokens, *d_out = d_scores + row * tokens;
    lanes.each(tokens, [=](std::size_t j) {
      const C p = j < seen ? std::exp(in[j] - total) : C(0);
      const C d = j < seen ? p * (d_in[j] - mean) * factor : C(0);
      p_out[j] = store<T>(p);
      d_out[j] = store<T>(d);
    });
  }
};

/// Element i of a key or value gradient: the sum over the query heads that use its head, in their
/// order. `by_query_head`: rows x heads x dim.
template <class T>
struct SumQueryHeads {
  AttentionSizes sizes;
  const WideOf<T>* by_query_head;
  T* out;
  ORRERY_HD void operator()(std::size_t i) const {
    const std::size_t element = i % sizes.dim, kv = i / sizes.dim % sizes.kv_heads;
    const std::size_t row = i / sizes.dim / sizes.kv_heads;
    WideOf<T> sum = 0;
    for (std::size_t head = 0; head < sizes.heads; ++head) {
      if (sizes.kv_head(head) != kv) continue;
      sum += by_query_head[(row * sizes.heads + head) * sizes.dim + element];
    }
    out[i] = store<T>(sum);
  }
};

/// Element i of a batch of products c = alpha op(a) op(b) with rows `lda`, `ldb`, `ldc` apart: for
/// operands that cuBLAS's batched products do not take.
template <class In, class Out>
struct BatchedProduct {
  bool transpose_a, transpose_b;
  std::size_t m, n, k, lda, ldb, ldc;
  double alpha;
  const void *const *a, *const *b, *const *c;
  ORRERY_HD void operator()(std::size_t i) const {
    const std::size_t item = i / (m * n), row = i / n % m, column = i % n;
    const auto* x = static_cast<const In*>(a[item]);
    const auto* y = static_cast<const In*>(b[item]);
    auto* z = static_cast<Out*>(const_cast<void*>(c[item]));
    WideOf<In> sum = 0;
    for (std::size_t j = 0; j < k; ++j) {
      sum += load(x[transpose_a ? j * lda + row : row * lda + j]) *
             load(y[transpose_b ? column * ldb + j : j * ldb + column]);
    }
    z[row * ldc + column] = store<Out>(static_cast<WideOf<In>>(alpha) * sum);
  }
};

}  // namespace orrery::executor::kernels
