/// Bodies of the kernels of executor/cuda that work element by element. Each kernel is a value with
/// its pointers: `operator()(i)` does element i, `operator()(row, lanes)` a row. Host and device
/// run the same text. Meanings are those of compute/backend.h; T is what a tensor stores, computing
/// is in WideOf<T>. Nothing is added atomically: every element is written by one thread, and its
/// sum has one order.
#pragma once
#include <cmath>
#include <cstddef>

#include "executor/cuda/numbers.h"

namespace orrery::executor::kernels {

template <class T>
struct Fill {
  T* x;
  T value;
  ORRERY_HD void operator()(std::size_t i) const { x[i] = value; }
};

template <class From, class To>
struct Convert {
  const From* from;
  To* to;
  ORRERY_HD void operator()(std::size_t i) const { to[i] = store<To>(load(from[i])); }
};

template <class X, class Y>
struct Add {
  const X* x;
  Y* to;
  ORRERY_HD void operator()(std::size_t i) const { to[i] = store<Y>(load(to[i]) + load(x[i])); }
};

/// What is left of c = alpha a b + beta c when the inner length is 0. With beta 0, c may hold
/// anything.
template <class T>
struct Scale {
  T* c;
  double beta;
  ORRERY_HD void operator()(std::size_t i) const {
    c[i] = store<T>(beta == 0 ? WideOf<T>(0) : load(c[i]) * WideOf<T>(beta));
  }
};

template <class T>
struct Gelu {
  const T* x;
  T* y;
  ORRERY_HD void operator()(std::size_t i) const {
    const WideOf<T> value = load(x[i]);
    y[i] = store<T>(value * normal_distribution(value));
  }
};

template <class T>
struct GeluBackward {
  const T *dy, *x;
  T* dx;
  ORRERY_HD void operator()(std::size_t i) const {
    const WideOf<T> value = load(x[i]);
    dx[i] = store<T>(load(dy[i]) * (normal_distribution(value) + value * normal_density(value)));
  }
};

template <class T>
struct Relu {
  const T* x;
  T* y;
  ORRERY_HD void operator()(std::size_t i) const {
    const WideOf<T> value = load(x[i]);
    y[i] = store<T>(value > 0 ? value : WideOf<T>(0));
  }
};

template <class T>
struct ReluBackward {
  const T *dy, *y;
  T* dx;
  ORRERY_HD void operator()(std::size_t i) const {
    dx[i] = load(y[i]) > 0 ? dy[i] : store<T>(WideOf<T>(0));
  }
};

/// Element i of x gets element i % width of the row.
template <class T>
struct AddRow {
  const T* row;
  std::size_t width;
  T* x;
  ORRERY_HD void operator()(std::size_t i) const {
    x[i] = store<T>(load(x[i]) + load(row[i % width]));
  }
};

template <class T>
struct SwiGlu {
  const T *gate, *up;
  T* y;
  ORRERY_HD void operator()(std::size_t i) const {
    const WideOf<T> value = load(gate[i]);
    y[i] = store<T>(value * sigmoid(value) * load(up[i]));
  }
};

template <class T>
struct SwiGluBackward {
  const T *dy, *gate, *up;
  T *d_gate, *d_up;
  ORRERY_HD void operator()(std::size_t i) const {
    using C = WideOf<T>;
    const C value = load(gate[i]), gradient = load(dy[i]), other = load(up[i]);
    const C s = sigmoid(value);
    const C silu = value * s;
    d_gate[i] = store<T>(gradient * other * (s + silu * (C(1) - s)));
    d_up[i] = store<T>(gradient * silu);
  }
};

/// `weight` is null where it shares memory with the master.
template <class T>
struct Adam {
  using C = WideOf<T>;
  const C* gradient;
  C *master, *first_moment, *second_moment;
  T* weight;
  C beta1, beta2, rest1, rest2, correction1, correction2, rate, epsilon, decay;
  ORRERY_HD void operator()(std::size_t i) const {
    const C g = gradient[i];
    const C m = beta1 * first_moment[i] + rest1 * g;
    const C v = beta2 * second_moment[i] + rest2 * g * g;
    first_moment[i] = m;
    second_moment[i] = v;
    const C change = m * correction1 / (std::sqrt(v * correction2) + epsilon);
    const C value = master[i] - rate * (change + decay * master[i]);
    master[i] = value;
    if (weight != nullptr) weight[i] = store<T>(value);
  }
};

template <class T>
struct Sgd {
  using C = WideOf<T>;
  C rate;
  const C* gradient;
  C* master;
  T* weight;  ///< As in Adam.
  ORRERY_HD void operator()(std::size_t i) const {
    const C value = master[i] - rate * gradient[i];
    master[i] = value;
    if (weight != nullptr) weight[i] = store<T>(value);
  }
};

}  // namespace orrery::executor::kernels
