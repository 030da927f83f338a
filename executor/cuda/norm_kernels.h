/// Bodies of the kernels of norms and rotary positions, and of sums and products over rows. Written
/// for host and device as those of kernels.h.
#pragma once
#include <cmath>
#include <cstddef>

#include "executor/compute/backend.h"
#include "executor/cuda/lanes.h"
#include "executor/cuda/numbers.h"

namespace orrery::executor::kernels {

/// Element i is a pair. Tables: tokens x head_dim / 2.
template <class T>
struct Rotate {
  T* x;
  const WideOf<T>*cosine, *sine;
  std::size_t tokens, heads, pairs;
  bool inverse;
  ORRERY_HD void operator()(std::size_t i) const {
    using C = WideOf<T>;
    const std::size_t row = i / (heads * pairs);
    const std::size_t angle = row % tokens * pairs + i % pairs;
    const C c = cosine[angle], s = inverse ? -sine[angle] : sine[angle];
    const C a = load(x[2 * i]), b = load(x[2 * i + 1]);
    x[2 * i] = store<T>(a * c - b * s);
    x[2 * i + 1] = store<T>(a * s + b * c);
  }
};

template <class T>
struct RmsNorm {
  const T *x, *gain;
  std::size_t width;
  T* y;
  WideOf<T>* inverse;
  template <class Lanes>
  ORRERY_HD void operator()(std::size_t row, const Lanes& lanes) const {
    using C = WideOf<T>;
    const T* in = x + row * width;
    T* out = y + row * width;
    const C squares =
        lanes.sum(C(0), width, [=](std::size_t i) { return load(in[i]) * load(in[i]); });
    const C r = C(1) / std::sqrt(squares / static_cast<C>(width) + static_cast<C>(kNormEpsilon));
    if (lanes.first()) inverse[row] = r;
    const T* g = gain;
    lanes.each(width, [=](std::size_t i) { out[i] = store<T>(load(in[i]) * r * load(g[i])); });
  }
};

/// With n = x r: dx += r (dy gain - n mean(dy gain n)).
template <class T>
struct RmsNormBackward {
  const T *dy, *x, *gain;
  const WideOf<T>* inverse;
  std::size_t width;
  T* dx;
  template <class Lanes>
  ORRERY_HD void operator()(std::size_t row, const Lanes& lanes) const {
    using C = WideOf<T>;
    const T *in = x + row * width, *gradient = dy + row * width, *g = gain;
    T* out = dx + row * width;
    const C r = inverse[row];
    const C product = lanes.sum(
        C(0), width, [=](std::size_t i) { return load(gradient[i]) * load(g[i]) * load(in[i]); });
    const C factor = product / static_cast<C>(width) * r;
    lanes.each(width, [=](std::size_t i) {
      const C change = r * (load(gradient[i]) * load(g[i]) - load(in[i]) * r * factor);
      out[i] = store<T>(load(out[i]) + change);
    });
  }
};

template <class T>
struct Center {
  const T* x;
  std::size_t width;
  T* y;
  template <class Lanes>
  ORRERY_HD void operator()(std::size_t row, const Lanes& lanes) const {
    using C = WideOf<T>;
    const T* in = x + row * width;
    T* out = y + row * width;
    const C sum = lanes.sum(C(0), width, [=](std::size_t i) { return load(in[i]); });
    const C mean = sum / static_cast<C>(width);
    lanes.each(width, [=](std::size_t i) { out[i] = store<T>(load(in[i]) - mean); });
  }
};

/// Element i of x times the factor of its row.
template <class T>
struct ScaleRows {
  const T* x;
  const WideOf<T>* factors;
  std::size_t width;
  T* y;
  ORRERY_HD void operator()(std::size_t i) const {
    y[i] = store<T>(load(x[i]) * factors[i / width]);
  }
};

template <class T>
struct DotRows {
  const T *x, *y;
  std::size_t width;
  WideOf<T>* products;
  template <class Lanes>
  ORRERY_HD void operator()(std::size_t row, const Lanes& lanes) const {
    using C = WideOf<T>;
    const T *a = x + row * width, *b = y + row * width;
    const C sum = lanes.sum(C(0), width, [=](std::size_t i) { return load(a[i]) * load(b[i]); });
    if (lanes.first()) products[row] = sum;
  }
};

/// Rows that one thread adds up for the gradients of gains and biases.
inline constexpr std::size_t kGainRows = 64;

/// Element i is column i % width of chunk i / width of kGainRows rows: their part of sum(dy n).
template <class T>
struct GainParts {
  const T *dy, *x;
  const WideOf<T>* inverse;
  std::size_t rows, width;
  WideOf<T>* parts;
  ORRERY_HD void operator()(std::size_t i) const {
    using C = WideOf<T>;
    const std::size_t column = i % width, begin = i / width * kGainRows;
    const std::size_t end = begin + kGainRows < rows ? begin + kGainRows : rows;
    C sum = 0;
    for (std::size_t row = begin; row < end; ++row) {
      const std::size_t at = row * width + column;
      sum += load(dy[at]) * (load(x[at]) * inverse[row]);
    }
    parts[i] = sum;
  }
};

/// The same of sum(x).
template <class T>
struct RowParts {
  const T* x;
  std::size_t rows, width;
  WideOf<T>* parts;
  ORRERY_HD void operator()(std::size_t i) const {
    const std::size_t column = i % width, begin = i / width * kGainRows;
    const std::size_t end = begin + kGainRows < rows ? begin + kGainRows : rows;
    WideOf<T> sum = 0;
    for (std::size_t row = begin; row < end; ++row) sum += load(x[row * width + column]);
    parts[i] = sum;
  }
};

/// Adds the chunks, in their order, to column i.
template <class C>
struct AddParts {
  const C* parts;
  std::size_t chunks, width;
  C* to;
  ORRERY_HD void operator()(std::size_t i) const {
    C sum = to[i];
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) sum += parts[chunk * width + i];
    to[i] = sum;
  }
};

}  // namespace orrery::executor::kernels
