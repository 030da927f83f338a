/// Bodies of the kernels over a slice of the vocabulary: look-up, and cross-entropy in three steps.
/// Written for host and device as those of kernels.h.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "executor/cuda/lanes.h"
#include "executor/cuda/numbers.h"

namespace orrery::executor::kernels {

/// Element i is column i % width of token i / width.
template <class T>
struct Embed {
  const std::int32_t* tokens;
  const T* table;
  std::int32_t first, count;
  std::size_t width;
  T* y;
  ORRERY_HD void operator()(std::size_t i) const {
    const std::int32_t token = tokens[i / width];
    const bool here = token >= first && token - first < count;
    const std::size_t place = here ? static_cast<std::size_t>(token - first) : 0;
    y[i] = here ? table[place * width + i % width] : store<T>(WideOf<T>(0));
  }
};

/// Element i is column i % width of group i / width of tokens that are equal: their places in the
/// micro-batch, ascending, are order[starts[group]] up to order[starts[group + 1]].
template <class T>
struct EmbedBackward {
  const T* dy;
  const std::int32_t *order, *starts, *rows;  ///< rows[group] of the table.
  std::size_t width;
  WideOf<T>* d_table;
  ORRERY_HD void operator()(std::size_t i) const {
    const std::size_t group = i / width, column = i % width;
    const std::size_t at = static_cast<std::size_t>(rows[group]) * width + column;
    WideOf<T> sum = d_table[at];
    for (std::int32_t k = starts[group]; k < starts[group + 1]; ++k) {
      sum += load(dy[static_cast<std::size_t>(order[k]) * width + column]);
    }
    d_table[at] = sum;
  }
};

template <class T>
struct RowMaximum {
  const T* logits;
  std::size_t count;
  WideOf<T>* maximum;
  template <class Lanes>
  ORRERY_HD void operator()(std::size_t row, const Lanes& lanes) const {
    const T* in = logits + row * count;
    const WideOf<T> largest = lanes.maximum(-static_cast<WideOf<T>>(HUGE_VAL), count,
                                            [=](std::size_t i) { return load(in[i]); });
    if (lanes.first()) maximum[row] = largest;
  }
};

template <class T>
struct RowSums {
  const T* logits;
  const std::int32_t* targets;
  std::int32_t first, count;
  const WideOf<T>* maximum;
  WideOf<T>*sums, *target_logits;
  template <class Lanes>
  ORRERY_HD void operator()(std::size_t row, const Lanes& lanes) const {
    using C = WideOf<T>;
    const std::size_t width = count;
    const T* in = logits + row * width;
    const C largest = maximum[row];
    const C sum =
        lanes.sum(C(0), width, [=](std::size_t i) { return std::exp(load(in[i]) - largest); });
    if (!lanes.first()) return;
    sums[row] = sum;
    const std::int32_t target = targets[row];
    const bool here = target >= first && target - first < count;
    target_logits[row] = here ? load(in[target - first]) : C(0);
  }
};

template <class T>
struct CrossEntropyBackward {
  T* logits;
  const std::int32_t* targets;
  std::int32_t first, count;
  const WideOf<T>*maximum, *sums;
  double scale;
  template <class Lanes>
  ORRERY_HD void operator()(std::size_t row, const Lanes& lanes) const {
    using C = WideOf<T>;
    const std::size_t width = count;
    T* in = logits + row * width;
    const C largest = maximum[row], factor = static_cast<C>(scale) / sums[row];
    const C whole = static_cast<C>(scale);
    const std::int64_t place = std::int64_t{targets[row]} - first;
    lanes.each(width, [=](std::size_t i) {
      const C share = std::exp(load(in[i]) - largest) * factor;
      in[i] = store<T>(static_cast<std::int64_t>(i) == place ? share - whole : share);
    });
  }
};

}  // namespace orrery::executor::kernels
