// Kernels over a slice of the vocabulary: look-up, and cross-entropy in three steps.
#include <algorithm>
#include <cmath>
#include <limits>

#include "executor/compute/cpu_kernels.h"
#include "executor/compute/cpu_math.h"

namespace orrery::executor {
namespace {

/// Place of the token in the slice, or -1.
std::ptrdiff_t place_of(std::int32_t token, int first, int count) {
  const bool here = token >= first && token - first < count;
  return here ? std::ptrdiff_t{token} - first : -1;
}

}  // namespace

template <class T>
void CpuKernels<T>::embed(std::span<const std::int32_t> tokens, const T* table, int first,
                          int count, std::size_t width, T* y) {
  for (const std::int32_t token : tokens) {
    const std::ptrdiff_t place = place_of(token, first, count);
    if (place < 0) {
      std::fill_n(y, width, T(0));
    } else {
      std::copy_n(table + place * static_cast<std::ptrdiff_t>(width), width, y);
    }
    y += width;
  }
}

template <class T>
void CpuKernels<T>::embed_backward(std::span<const std::int32_t> tokens, const T* dy, int first,
                                   int count, std::size_t width, T* d_table) {
  for (const std::int32_t token : tokens) {
    const std::ptrdiff_t place = place_of(token, first, count);
    if (place >= 0) add({dy, width}, d_table + place * static_cast<std::ptrdiff_t>(width));
    dy += width;
  }
}

template <class T>
void CpuKernels<T>::row_maximum(const T* logits, std::size_t rows, std::size_t count, T* maximum) {
  for (std::size_t row = 0; row < rows; ++row, logits += count) {
    T largest = -std::numeric_limits<T>::infinity();
    for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, logits[i]);
    maximum[row] = largest;
  }
}

template <class T>
void CpuKernels<T>::row_sums(const T* logits, std::span<const std::int32_t> targets, int first,
                             int count, const T* maximum, T* sums, T* target_logits) {
  const std::size_t width = count;
  for (std::size_t row = 0; row < targets.size(); ++row, logits += width) {
    const T largest = maximum[row];
    sums[row] = T(lane_sum(width, [=](std::size_t i) { return exponential(logits[i] - largest); }));
    const std::ptrdiff_t place = place_of(targets[row], first, count);
    target_logits[row] = place < 0 ? T(0) : logits[place];
  }
}

template <class T>
void CpuKernels<T>::cross_entropy_backward(T* logits, std::span<const std::int32_t> targets,
                                           int first, int count, const T* maximum, const T* sums,
                                           double scale) {
  const std::size_t width = count;
  for (std::size_t row = 0; row < targets.size(); ++row, logits += width) {
    const T largest = maximum[row];
    const T factor = T(scale / static_cast<double>(sums[row]));
    for (std::size_t i = 0; i < width; ++i) logits[i] = exponential(logits[i] - largest) * factor;
    const std::ptrdiff_t place = place_of(targets[row], first, count);
    if (place >= 0) logits[place] -= T(scale);
  }
}

#define ORRERY_INSTANTIATE(T)                                                                      \
  template void CpuKernels<T>::embed(std::span<const std::int32_t>, const T*, int, int,            \
                                     std::size_t, T*);                                             \
  template void CpuKernels<T>::embed_backward(std::span<const std::int32_t>, const T*, int, int,   \
                                              std::size_t, T*);                                    \
  template void CpuKernels<T>::row_maximum(const T*, std::size_t, std::size_t, T*);                \
  template void CpuKernels<T>::row_sums(const T*, std::span<const std::int32_t>, int, int,         \
                                        const T*, T*, T*);                                         \
  template void CpuKernels<T>::cross_entropy_backward(T*, std::span<const std::int32_t>, int, int, \
                                                      const T*, const T*, double);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(double)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::executor
