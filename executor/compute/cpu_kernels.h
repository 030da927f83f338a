/// Kernels of the CPU back end on plain pointers; their meaning is that of the functions of
/// compute/backend.h with the same names. One thread; T is float or double. What one row or one
/// sample gives does not depend on how many are computed together, matrix products excepted.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "executor/compute/backend.h"
#include "executor/compute/cpu_gemm.h"

namespace orrery::executor {

template <class T>
struct CpuKernels {
  static void fill(std::span<T> x, T value);
  static void add(std::span<const T> x, T* to);

  static void rms_norm(const T* x, const T* gain, std::size_t rows, std::size_t width, T* y,
                       T* inverse);
  /// `d_gain` may be null.
  static void rms_norm_backward(const T* dy, const T* x, const T* gain, const T* inverse,
                                std::size_t rows, std::size_t width, T* dx, T* d_gain);
  static void center(const T* x, std::size_t rows, std::size_t width, T* y);
  static void add_row(const T* row, std::size_t rows, std::size_t width, T* x);
  static void sum_rows(const T* x, std::size_t rows, std::size_t width, T* sum);
  static void scale_rows(const T* x, const T* factors, std::size_t rows, std::size_t width, T* y);
  static void dot_rows(const T* x, const T* y, std::size_t rows, std::size_t width, T* products);
  static void rotate(T* x, std::size_t rows, std::size_t tokens, std::size_t heads,
                     std::size_t head_dim, bool inverse);

  static void attention(CpuLibrary library, const AttentionShape& shape, const T* q, const T* k,
                        const T* v, T* o, T* log_sum);
  static void attention_backward(CpuLibrary library, const AttentionShape& shape, const T* d_o,
                                 const T* q, const T* k, const T* v, const T* o, const T* log_sum,
                                 T* dq, T* dk, T* dv);

  static void gelu(std::span<const T> x, T* y);
  static void gelu_backward(const T* dy, std::span<const T> x, T* dx);
  static void relu(std::span<const T> x, T* y);
  static void relu_backward(const T* dy, std::span<const T> y, T* dx);
  static void swiglu(std::span<const T> gate, const T* up, T* y);
  static void swiglu_backward(const T* dy, std::span<const T> gate, const T* up, T* d_gate,
                              T* d_up);

  static void embed(std::span<const std::int32_t> tokens, const T* table, int first, int count,
                    std::size_t width, T* y);
  static void embed_backward(std::span<const std::int32_t> tokens, const T* dy, int first,
                             int count, std::size_t width, T* d_table);
  static void row_maximum(const T* logits, std::size_t rows, std::size_t count, T* maximum);
  static void row_sums(const T* logits, std::span<const std::int32_t> targets, int first, int count,
                       const T* maximum, T* sums, T* target_logits);
  static void cross_entropy_backward(T* logits, std::span<const std::int32_t> targets, int first,
                                     int count, const T* maximum, const T* sums, double scale);

  static void adam(const AdamStep& step, std::span<const T> gradient, T* master, T* first_moment,
                   T* second_moment);
  static void sgd(double learning_rate, std::span<const T> gradient, T* master);
};

}  // namespace orrery::executor
