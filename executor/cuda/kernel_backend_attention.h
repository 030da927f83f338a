/// Attention of KernelBackend: batched matrix products over (sample, head) pairs with row kernels
/// between them. Scores exist for as many pairs at a time as fit into kScoreBytes; the backward
/// pass makes them again from the log-sum-exp [Dao et al. 2022].
/// Included by kernel_backend.h alone.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "executor/cuda/kernel_backend.h"
#include "models/base/ids.h"

namespace orrery::executor {

/// Scores in memory at a time, where one pair does not need more.
inline constexpr std::size_t kScoreBytes = std::size_t{256} << 20;

template <class Device, class T>
void KernelBackend<Device, T>::expect(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                                      const Tensor& v, const Tensor& o,
                                      const Tensor& log_sum) const {
  const AttentionElements elements = elements_of(shape);
  expect(q, elements.query);
  expect(o, elements.query);
  expect(k, elements.key_value);
  expect(v, elements.key_value);
  expect(log_sum, elements.log_sum);
}

/// One call: its sizes, scratch memory, and products over the pairs of a chunk.
template <class Device, class T>
class KernelBackend<Device, T>::Attention {
 public:
  Attention(Device& device, const AttentionShape& shape)
      : device_(device),
        sizes_(sizes_of(shape)),
        items_(size(shape.samples) * sizes_.heads),
        chunk_(std::clamp<std::size_t>(kScoreBytes / (item_elements() * sizeof(C)), 1,
                                       std::max<std::size_t>(items_, 1))),
        scale_(static_cast<C>(1 / std::sqrt(static_cast<double>(shape.head_dim)))),
        row_(static_cast<int>(sizes_.heads * sizes_.dim)),
        kv_row_(static_cast<int>(sizes_.kv_heads * sizes_.dim)) {
    for (MemoryPointer& memory : pointers_) memory = device_.allocate(chunk_ * sizeof(void*));
  }

  const kernels::AttentionSizes& sizes() const { return sizes_; }
  C scale() const { return scale_; }
  std::size_t item_elements() const { return sizes_.tokens * sizes_.tokens; }
  template <class X>
  X* address(const MemoryPointer& memory) const {
    return reinterpret_cast<X*>(device_.use(*memory));
  }
  MemoryPointer scores(std::size_t element) const {
    return device_.allocate(chunk_ * item_elements() * element);
  }

  /// visit(first item, items) until all are done.
  template <class Visit>
  void for_chunks(const Visit& visit) {
    for (first_ = 0; first_ < items_; first_ += count_) {
      count_ = std::min(chunk_, items_ - first_);
      visit(first_, count_);
    }
  }

  /// A matrix of each item: tokens x tokens, or tokens x dim inside rows of all heads.
  template <class X>
  struct Operand {
    X* base;
    enum class Of { scores, heads, kv_heads } of;
    bool transposed = false;
  };
  template <class X>
  using Of = typename Operand<X>::Of;

  /// c = alpha op(a) op(b) for the items of the chunk. c is tokens x `columns`.
  template <class Out>
  void multiply(std::size_t columns, std::size_t inner, C alpha, const Operand<const T>& a,
                const Operand<const T>& b, const Operand<Out>& c) {
    const void** at[] = {place(0, a), place(1, b), place(2, c)};
    const auto narrowed = [](std::size_t length) { return static_cast<int>(length); };
    if (takes(a.base) && takes(b.base) && takes(c.base)) {
      device_.gemm_batched({a.transposed, b.transposed, narrowed(sizes_.tokens), narrowed(columns),
                            narrowed(inner), static_cast<double>(alpha), 0, number_of<T>(),
                            number_of<Out>(), at[0], stride(a), at[1], stride(b), at[2], stride(c)},
                           narrowed(count_));
      return;
    }
    device_.each(
        kernels::BatchedProduct<T, Out>{a.transposed, b.transposed, sizes_.tokens, columns, inner,
                                        as_size(stride(a)), as_size(stride(b)), as_size(stride(c)),
                                        static_cast<double>(alpha), at[0], at[1], at[2]},
        count_ * sizes_.tokens * columns);
  }

 private:
  template <class X>
  const void** place(std::size_t slot, const Operand<X>& operand) {
    using Stored = std::remove_const_t<X>;
    const auto out = address<const void*>(pointers_[slot]);
    if (operand.of == Operand<X>::Of::scores) {
      device_.each(kernels::ScorePointers<Stored>{item_elements(), operand.base, out}, count_);
    } else {
      device_.each(kernels::ItemPointers<Stored>{sizes_, first_, operand.base,
                                                 operand.of == Operand<X>::Of::kv_heads, out},
                   count_);
    }
    return out;
  }
  template <class X>
  int stride(const Operand<X>& operand) const {
    if (operand.of == Operand<X>::Of::scores) return static_cast<int>(sizes_.tokens);
    return operand.of == Operand<X>::Of::heads ? row_ : kv_row_;
  }
  /// cuBLAS wants matrices of a bf16 batch to start at multiples of 16 bytes. [cuBLAS 13,
  /// cublasGemmBatchedEx]
  bool takes(const void* base) const {
    if constexpr (!std::is_same_v<T, Bf16>) return true;
    return sizes_.dim % 8 == 0 && sizes_.tokens % 8 == 0 &&
           reinterpret_cast<std::uintptr_t>(base) % 16 == 0;
  }

  Device& device_;
  kernels::AttentionSizes sizes_;
  std::size_t items_;
  std::size_t chunk_;
  C scale_;
  int row_, kv_row_;
  std::size_t first_ = 0, count_ = 0;
  MemoryPointer pointers_[3];
};

template <class Device, class T>
void KernelBackend<Device, T>::attention(const AttentionShape& shape, const Tensor& q,
                                         const Tensor& k, const Tensor& v, const Tensor& o,
                                         const Tensor& log_sum) {
  const auto turn = device_->turn();
  expect(shape, q, k, v, o, log_sum);
  if (q.elements == 0) return;
  Attention work(*device_, shape);
  const kernels::AttentionSizes& sizes = work.sizes();
  const MemoryPointer score_memory = work.scores(sizeof(C));
  const MemoryPointer p_memory = std::is_same_v<T, C> ? score_memory : work.scores(sizeof(T));
  C* scores = work.template address<C>(score_memory);
  T* p = work.template address<T>(p_memory);
  using In = typename Attention::template Operand<const T>;
  using Of = typename In::Of;
  using Scores = typename Attention::template Operand<C>;
  using Out = typename Attention::template Operand<T>;
  work.for_chunks([&](std::size_t first, std::size_t count) {
    work.template multiply<C>(sizes.tokens, sizes.dim, work.scale(), In{at(q), Of::heads, false},
                              In{at(k), Of::kv_heads, true},
                              Scores{scores, Scores::Of::scores, false});
    device_->rows(kernels::SoftmaxRow<T>{sizes, first, scores, p, wide_at(log_sum)},
                  count * sizes.tokens);
    work.template multiply<T>(sizes.dim, sizes.tokens, C(1), In{p, Of::scores, false},
                              In{at(v), Of::kv_heads, false}, Out{at(o), Out::Of::heads, false});
  });
}

template <class Device, class T>
void KernelBackend<Device, T>::attention_backward(const AttentionShape& shape, const Tensor& d_o,
                                                  const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const Tensor& o, const Tensor& log_sum,
                                                  const Tensor& dq, const Tensor& dk,
                                                  const Tensor& dv) {
  const auto turn = device_->turn();
  expect(shape, q, k, v, o, log_sum);
  expect(shape, dq, dk, dv, d_o, log_sum);
  if (q.elements == 0) return;
  Attention work(*device_, shape);
  const kernels::AttentionSizes& sizes = work.sizes();
  const MemoryPointer memory[] = {work.scores(sizeof(C)), work.scores(sizeof(C))};
  constexpr bool kInPlace = std::is_same_v<T, C>;
  const MemoryPointer p_memory = kInPlace ? memory[0] : work.scores(sizeof(T));
  const MemoryPointer d_memory = kInPlace ? memory[1] : work.scores(sizeof(T));
  C *scores = work.template address<C>(memory[0]), *dp = work.template address<C>(memory[1]);
  T *p = work.template address<T>(p_memory), *ds = work.template address<T>(d_memory);
  const MemoryPointer dk_memory = device_->allocate(q.elements * sizeof(C));
  const MemoryPointer dv_memory = device_->allocate(q.elements * sizeof(C));
  C *dk_heads = address<C>(dk_memory), *dv_heads = address<C>(dv_memory);
  using In = typename Attention::template Operand<const T>;
  using Of = typename In::Of;
  using Wide = typename Attention::template Operand<C>;
  using Out = typename Attention::template Operand<T>;
  work.for_chunks([&](std::size_t first, std::size_t count) {
    work.template multiply<C>(sizes.tokens, sizes.dim, work.scale(), In{at(q), Of::heads, false},
                              In{at(k), Of::kv_heads, true}, Wide{scores, Wide::Of::scores, false});
    work.template multiply<C>(sizes.tokens, sizes.dim, C(1), In{at(d_o), Of::heads, false},
                              In{at(v), Of::kv_heads, true}, Wide{dp, Wide::Of::scores, false});
    device_->rows(kernels::SoftmaxBackwardRow<T>{sizes, first, scores, dp, wide_at(log_sum), at(o),
                                                 at(d_o), work.scale(), p, ds},
                  count * sizes.tokens);
    work.template multiply<C>(sizes.dim, sizes.tokens, C(1), In{p, Of::scores, true},
                              In{at(d_o), Of::heads, false},
                              Wide{dv_heads, Wide::Of::heads, false});
    work.template multiply<T>(sizes.dim, sizes.tokens, C(1), In{ds, Of::scores, false},
                              In{at(k), Of::kv_heads, false}, Out{at(dq), Out::Of::heads, false});
    work.template multiply<C>(sizes.dim, sizes.tokens, C(1), In{ds, Of::scores, true},
                              In{at(q), Of::heads, false}, Wide{dk_heads, Wide::Of::heads, false});
  });
  device_->each(kernels::SumQueryHeads<T>{sizes, dk_heads, at(dk)}, dk.elements);
  device_->each(kernels::SumQueryHeads<T>{sizes, dv_heads, at(dv)}, dv.elements);
}

}  // namespace orrery::executor
