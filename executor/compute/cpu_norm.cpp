// RMSNorm, what makes LayerNorm of it, biases, products of rows, and rotary position embedding.
#include <cmath>
#include <vector>

#include "executor/compute/cpu_kernels.h"
#include "executor/compute/cpu_math.h"

namespace orrery::executor {

template <class T>
void CpuKernels<T>::rms_norm(const T* x, const T* gain, std::size_t rows, std::size_t width, T* y,
                             T* inverse) {
  for (std::size_t row = 0; row < rows; ++row, x += width, y += width) {
    const double squares = lane_sum(width, [x](std::size_t i) {
      return static_cast<double>(x[i]) * static_cast<double>(x[i]);
    });
    const T r = T(1 / std::sqrt(squares / static_cast<double>(width) + kNormEpsilon));
    inverse[row] = r;
    for (std::size_t i = 0; i < width; ++i) y[i] = x[i] * r * gain[i];
  }
}

/// With n = x r: dx = r (dy gain - n mean(dy gain n)), d_gain = sum over rows of dy n.
template <class T>
void CpuKernels<T>::rms_norm_backward(const T* dy, const T* x, const T* gain, const T* inverse,
                                      std::size_t rows, std::size_t width, T* dx, T* d_gain) {
  for (std::size_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
    const T r = inverse[row];
    const double product = lane_sum(width, [=](std::size_t i) {
      return static_cast<double>(dy[i]) * static_cast<double>(gain[i]) * static_cast<double>(x[i]);
    });
    const T factor = T(product / static_cast<double>(width) * static_cast<double>(r));
    for (std::size_t i = 0; i < width; ++i) dx[i] += r * (dy[i] * gain[i] - x[i] * r * factor);
    if (d_gain == nullptr) continue;
    for (std::size_t i = 0; i < width; ++i) d_gain[i] += dy[i] * (x[i] * r);
  }
}

template <class T>
void CpuKernels<T>::center(const T* x, std::size_t rows, std::size_t width, T* y) {
  for (std::size_t row = 0; row < rows; ++row, x += width, y += width) {
    const double sum = lane_sum(width, [x](std::size_t i) { return static_cast<double>(x[i]); });
    const T mean = T(sum / static_cast<double>(width));
    for (std::size_t i = 0; i < width; ++i) y[i] = x[i] - mean;
  }
}

template <class T>
void CpuKernels<T>::add_row(const T* row, std::size_t rows, std::size_t width, T* x) {
  for (std::size_t r = 0; r < rows; ++r, x += width) {
    for (std::size_t i = 0; i < width; ++i) x[i] += row[i];
  }
}

template <class T>
void CpuKernels<T>::sum_rows(const T* x, std::size_t rows, std::size_t width, T* sum) {
  for (std::size_t r = 0; r < rows; ++r, x += width) {
    for (std::size_t i = 0; i < width; ++i) sum[i] += x[i];
  }
}

template <class T>
void CpuKernels<T>::scale_rows(const T* x, const T* factors, std::size_t rows, std::size_t width,
                               T* y) {
  for (std::size_t r = 0; r < rows; ++r, x += width, y += width) {
    for (std::size_t i = 0; i < width; ++i) y[i] = x[i] * factors[r];
  }
}

template <class T>
void CpuKernels<T>::dot_rows(const T* x, const T* y, std::size_t rows, std::size_t width,
                             T* products) {
  for (std::size_t r = 0; r < rows; ++r, x += width, y += width) {
    products[r] = T(lane_sum(width, [=](std::size_t i) {
      return static_cast<double>(x[i]) * static_cast<double>(y[i]);
    }));
  }
}

template <class T>
void CpuKernels<T>::rotate(T* x, std::size_t rows, std::size_t tokens, std::size_t heads,
                           std::size_t head_dim, bool inverse) {
  const std::size_t pairs = head_dim / 2;
  std::vector<T> cosine(tokens * pairs), sine(tokens * pairs);
  for (std::size_t position = 0; position < tokens; ++position) {
    for (std::size_t i = 0; i < pairs; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
      const double angle = static_cast<double>(position) * std::pow(kRotaryBase, exponent);
      cosine[position * pairs + i] = T(std::cos(angle));
      sine[position * pairs + i] = T(inverse ? -std::sin(angle) : std::sin(angle));
    }
  }
  for (std::size_t row = 0; row < rows; ++row) {
    const T* c = &cosine[row % tokens * pairs];
    const T* s = &sine[row % tokens * pairs];
    for (std::size_t head = 0; head < heads; ++head, x += head_dim) {
      for (std::size_t i = 0; i < pairs; ++i) {
        const T a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * c[i] - b * s[i];
        x[2 * i + 1] = a * s[i] + b * c[i];
      }
    }
  }
}

#define ORRERY_INSTANTIATE(T)                                                                  \
  template void CpuKernels<T>::rms_norm(const T*, const T*, std::size_t, std::size_t, T*, T*); \
  template void CpuKernels<T>::rms_norm_backward(const T*, const T*, const T*, const T*,       \
                                                 std::size_t, std::size_t, T*, T*);            \
  template void CpuKernels<T>::center(const T*, std::size_t, std::size_t, T*);                 \
  template void CpuKernels<T>::add_row(const T*, std::size_t, std::size_t, T*);                \
  template void CpuKernels<T>::sum_rows(const T*, std::size_t, std::size_t, T*);               \
  template void CpuKernels<T>::scale_rows(const T*, const T*, std::size_t, std::size_t, T*);   \
  template void CpuKernels<T>::dot_rows(const T*, const T*, std::size_t, std::size_t, T*);     \
  template void CpuKernels<T>::rotate(T*, std::size_t, std::size_t, std::size_t, std::size_t, bool);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(double)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::executor
