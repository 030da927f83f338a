// Attention by blocks of query rows: scores of one block exist at a time, and the backward pass
// recomputes them from the log-sum-exp [Dao et al. 2022, algorithms 1 and 4; here a block sees all
// keys at once, so that no running maximum is needed].
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "executor/compute/cpu_kernels.h"
#include "executor/compute/cpu_math.h"
#include "models/base/ids.h"

namespace orrery::executor {
namespace {

constexpr int kQueryRows = 64;

/// Rows of one head inside rows of all heads.
template <class T>
class Heads {
 public:
  Heads(T* data, int tokens, int heads, int head_dim)
      : data_(data), tokens_(tokens), heads_(heads), dim_(head_dim) {}
  std::ptrdiff_t stride() const { return std::ptrdiff_t{heads_} * dim_; }
  T* row(int sample, int token, int head) const {
    return data_ + (std::ptrdiff_t{sample} * tokens_ + token) * stride() +
           std::ptrdiff_t{head} * dim_;
  }
  CpuMatrix<T> matrix(int sample, int token, int head, bool transposed = false) const {
    return {row(sample, token, head), stride(), transposed};
  }

 private:
  T* data_;
  int tokens_, heads_, dim_;
};

/// A block of query rows of one head.
struct Block {
  int sample = 0, head = 0, kv_head = 0;
  int begin = 0, rows = 0;
  int keys = 0;  ///< The block sees keys [0, keys).
};

template <class Visit>
void for_blocks(const AttentionShape& shape, const Visit& visit) {
  for (int sample = 0; sample < shape.samples; ++sample) {
    for (int head = 0; head < shape.heads; ++head) {
      const int kv_head = (shape.first_head + head) / shape.group - shape.first_kv;
      for (int begin = 0; begin < shape.tokens; begin += kQueryRows) {
        const int rows = std::min(kQueryRows, shape.tokens - begin);
        visit(
            Block{sample, head, kv_head, begin, rows, shape.causal ? begin + rows : shape.tokens});
      }
    }
  }
}

/// Keys that row `i` of the block sees.
int visible(const AttentionShape& shape, const Block& block, int i) {
  return shape.causal ? block.begin + i + 1 : block.keys;
}

std::size_t log_sum_at(const AttentionShape& shape, const Block& block) {
  return (as_size(block.sample) * as_size(shape.heads) + as_size(block.head)) *
             as_size(shape.tokens) +
         as_size(block.begin);
}

/// Scores to probabilities; returns the log-sum-exp.
template <class T>
T softmax_row(T* scores, int seen, int keys) {
  T largest = scores[0];
  for (int j = 1; j < seen; ++j) largest = std::max(largest, scores[j]);
  for (int j = 0; j < seen; ++j) scores[j] = exponential(scores[j] - largest);
  const double sum = lane_sum(as_size(seen), [scores](std::size_t j) { return scores[j]; });
  const T factor = T(1 / sum);
  for (int j = 0; j < seen; ++j) scores[j] *= factor;
  std::fill(scores + seen, scores + keys, T(0));
  return T(static_cast<double>(largest) + std::log(sum));
}

}  // namespace

template <class T>
void CpuKernels<T>::attention(CpuLibrary library, const AttentionShape& shape, const T* q,
                              const T* k, const T* v, T* o, T* log_sum) {
  const int dim = shape.head_dim;
  const Heads<const T> queries(q, shape.tokens, shape.heads, dim);
  const Heads<const T> keys(k, shape.tokens, shape.kv_heads, dim);
  const Heads<const T> values(v, shape.tokens, shape.kv_heads, dim);
  const Heads<T> out(o, shape.tokens, shape.heads, dim);
  const T scale = T(1 / std::sqrt(static_cast<double>(dim)));
  std::vector<T> scores(as_size(kQueryRows) * as_size(shape.tokens));
  for_blocks(shape, [&](const Block& b) {
    const CpuMatrix<T> s = {scores.data(), b.keys, false};
    cpu_gemm<T>(library, b.rows, b.keys, dim, scale, queries.matrix(b.sample, b.begin, b.head),
                keys.matrix(b.sample, 0, b.kv_head, true), 0, s);
    T* sums = log_sum + log_sum_at(shape, b);
    for (int i = 0; i < b.rows; ++i) {
      sums[i] = softmax_row(s.data + i * s.stride, visible(shape, b, i), b.keys);
    }
    cpu_gemm<T>(library, b.rows, dim, b.keys, 1, {s.data, s.stride, false},
                values.matrix(b.sample, 0, b.kv_head), 0, out.matrix(b.sample, b.begin, b.head));
  });
}

template <class T>
void CpuKernels<T>::attention_backward(CpuLibrary library, const AttentionShape& shape,
                                       const T* d_o, const T* q, const T* k, const T* v, const T* o,
                                       const T* log_sum, T* dq, T* dk, T* dv) {
  const int dim = shape.head_dim;
  const Heads<const T> queries(q, shape.tokens, shape.heads, dim);
  const Heads<const T> keys(k, shape.tokens, shape.kv_heads, dim);
  const Heads<const T> values(v, shape.tokens, shape.kv_heads, dim);
  const Heads<const T> out(o, shape.tokens, shape.heads, dim);
  const Heads<const T> d_out(d_o, shape.tokens, shape.heads, dim);
  const Heads<T> d_queries(dq, shape.tokens, shape.heads, dim);
  const Heads<T> d_keys(dk, shape.tokens, shape.kv_heads, dim);
  const Heads<T> d_values(dv, shape.tokens, shape.kv_heads, dim);
  const T scale = T(1 / std::sqrt(static_cast<double>(dim)));
  const auto kv_elements =
      as_size(shape.samples) * as_size(shape.tokens) * as_size(shape.kv_heads) * as_size(dim);
  fill({dk, kv_elements}, 0);
  fill({dv, kv_elements}, 0);
  const auto scratch = as_size(kQueryRows) * as_size(shape.tokens);
  std::vector<T> probabilities(scratch), d_scores(scratch);
  for_blocks(shape, [&](const Block& b) {
    const CpuMatrix<T> p = {probabilities.data(), b.keys, false};
    const CpuMatrix<T> ds = {d_scores.data(), b.keys, false};
    const auto d_out_rows = d_out.matrix(b.sample, b.begin, b.head);
    cpu_gemm<T>(library, b.rows, b.keys, dim, scale, queries.matrix(b.sample, b.begin, b.head),
                keys.matrix(b.sample, 0, b.kv_head, true), 0, p);
    cpu_gemm<T>(library, b.rows, b.keys, dim, 1, d_out_rows,
                values.matrix(b.sample, 0, b.kv_head, true), 0, ds);
    const T* sums = log_sum + log_sum_at(shape, b);
    for (int i = 0; i < b.rows; ++i) {
      const int seen = visible(shape, b, i);
      T* row = p.data + i * p.stride;
      T* d_row = ds.data + i * ds.stride;
      const T* g = d_out.row(b.sample, b.begin + i, b.head);
      const T* y = out.row(b.sample, b.begin + i, b.head);
      const T mean = T(lane_sum(as_size(dim), [=](std::size_t e) {
        return static_cast<double>(g[e]) * static_cast<double>(y[e]);
      }));
      for (int j = 0; j < seen; ++j) row[j] = exponential(row[j] - sums[i]);
      for (int j = 0; j < seen; ++j) d_row[j] = row[j] * (d_row[j] - mean) * scale;
      std::fill(row + seen, row + b.keys, T(0));
      std::fill(d_row + seen, d_row + b.keys, T(0));
    }
    cpu_gemm<T>(library, b.keys, dim, b.rows, 1, {p.data, p.stride, true}, d_out_rows, 1,
                d_values.matrix(b.sample, 0, b.kv_head));
    cpu_gemm<T>(library, b.rows, dim, b.keys, 1, {ds.data, ds.stride, false},
                keys.matrix(b.sample, 0, b.kv_head), 0,
                d_queries.matrix(b.sample, b.begin, b.head));
    cpu_gemm<T>(library, b.keys, dim, b.rows, 1, {ds.data, ds.stride, true},
                queries.matrix(b.sample, b.begin, b.head), 1,
                d_keys.matrix(b.sample, 0, b.kv_head));
  });
}

#define ORRERY_INSTANTIATE(T)                                                                   \
  template void CpuKernels<T>::attention(CpuLibrary, const AttentionShape&, const T*, const T*, \
                                         const T*, T*, T*);                                     \
  template void CpuKernels<T>::attention_backward(CpuLibrary, const AttentionShape&, const T*,  \
                                                  const T*, const T*, const T*, const T*,       \
                                                  const T*, T*, T*, T*);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(double)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::executor
