// Kernels that work element by element, and the optimizers.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "executor/compute/cpu_kernels.h"
#include "executor/compute/cpu_math.h"

namespace orrery::executor {
namespace {

template <class T>
T normal_distribution(T x) {
  return T(0.5) * (T(1) + std::erf(x * T(1 / std::numbers::sqrt2)));
}

/// Density of the normal distribution at x.
template <class T>
T normal_density(T x) {
  constexpr double kInverseRoot = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return T(kInverseRoot) * exponential(T(-0.5) * x * x);
}

template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + exponential(-x));
}

}  // namespace

template <class T>
void CpuKernels<T>::fill(std::span<T> x, T value) {
  std::fill(x.begin(), x.end(), value);
}

template <class T>
void CpuKernels<T>::add(std::span<const T> x, T* to) {
  for (std::size_t i = 0; i < x.size(); ++i) to[i] += x[i];
}

template <class T>
void CpuKernels<T>::gelu(std::span<const T> x, T* y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * normal_distribution(x[i]);
}

template <class T>
void CpuKernels<T>::gelu_backward(const T* dy, std::span<const T> x, T* dx) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    dx[i] = dy[i] * (normal_distribution(x[i]) + x[i] * normal_density(x[i]));
  }
}

template <class T>
void CpuKernels<T>::relu(std::span<const T> x, T* y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = std::max(x[i], T(0));
}

template <class T>
void CpuKernels<T>::relu_backward(const T* dy, std::span<const T> y, T* dx) {
  for (std::size_t i = 0; i < y.size(); ++i) dx[i] = y[i] > T(0) ? dy[i] : T(0);
}

template <class T>
void CpuKernels<T>::swiglu(std::span<const T> gate, const T* up, T* y) {
  for (std::size_t i = 0; i < gate.size(); ++i) y[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

template <class T>
void CpuKernels<T>::swiglu_backward(const T* dy, std::span<const T> gate, const T* up, T* d_gate,
                                    T* d_up) {
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const T s = sigmoid(gate[i]);
    const T silu = gate[i] * s;
    const T gradient = dy[i];
    d_gate[i] = gradient * up[i] * (s + silu * (T(1) - s));
    d_up[i] = gradient * silu;
  }
}

template <class T>
void CpuKernels<T>::adam(const AdamStep& step, std::span<const T> gradient, T* master,
                         T* first_moment, T* second_moment) {
  const auto count = static_cast<double>(step.step);
  const T correction1 = T(1 / (1 - std::pow(step.beta1, count)));
  const T correction2 = T(1 / (1 - std::pow(step.beta2, count)));
  const T beta1 = T(step.beta1), beta2 = T(step.beta2);
  const T rest1 = T(1 - step.beta1), rest2 = T(1 - step.beta2);
  const T rate = T(step.learning_rate), epsilon = T(step.epsilon), decay = T(step.weight_decay);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const T g = gradient[i];
    first_moment[i] = beta1 * first_moment[i] + rest1 * g;
    second_moment[i] = beta2 * second_moment[i] + rest2 * g * g;
    const T change =
        first_moment[i] * correction1 / (std::sqrt(second_moment[i] * correction2) + epsilon);
    master[i] -= rate * (change + decay * master[i]);
  }
}

template <class T>
void CpuKernels<T>::sgd(double learning_rate, std::span<const T> gradient, T* master) {
  const T rate = T(learning_rate);
  for (std::size_t i = 0; i < gradient.size(); ++i) master[i] -= rate * gradient[i];
}

#define ORRERY_INSTANTIATE(T)                                                                   \
  template void CpuKernels<T>::fill(std::span<T>, T);                                           \
  template void CpuKernels<T>::add(std::span<const T>, T*);                                     \
  template void CpuKernels<T>::gelu(std::span<const T>, T*);                                    \
  template void CpuKernels<T>::gelu_backward(const T*, std::span<const T>, T*);                 \
  template void CpuKernels<T>::relu(std::span<const T>, T*);                                    \
  template void CpuKernels<T>::relu_backward(const T*, std::span<const T>, T*);                 \
  template void CpuKernels<T>::swiglu(std::span<const T>, const T*, T*);                        \
  template void CpuKernels<T>::swiglu_backward(const T*, std::span<const T>, const T*, T*, T*); \
  template void CpuKernels<T>::adam(const AdamStep&, std::span<const T>, T*, T*, T*);           \
  template void CpuKernels<T>::sgd(double, std::span<const T>, T*);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(double)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::executor
