/// Numbers that kernels of executor/cuda compute with, for host and device: bf16 as two bytes, and
/// the precision in which a kernel computes on what it stores. No CUDA header is needed, so that
/// the bodies of kernels compile and run on the host as well.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define ORRERY_HD __host__ __device__
#else
#define ORRERY_HD  ///< Callable on host and device.
#endif

namespace orrery::executor {

/// The upper half of an fp32 number.
struct Bf16 {
  std::uint16_t bits = 0;
};
ORRERY_HD inline float widen(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
/// To nearest, ties to even; not-a-numbers stay so.
ORRERY_HD inline Bf16 narrow(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return {static_cast<std::uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

/// What a kernel computes in for stored T, and what the wide tensors that go with it are made of.
template <class T>
using WideOf = std::conditional_t<std::is_same_v<T, Bf16>, float, T>;

template <class T>
ORRERY_HD WideOf<T> load(T value) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return widen(value);
  } else {
    return value;
  }
}
template <class T, class C>
ORRERY_HD T store(C value) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return narrow(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

/// [Hendrycks and Gimpel 2016]: the normal distribution, and its density.
template <class C>
ORRERY_HD C normal_distribution(C x) {
  return C(0.5) * (C(1) + std::erf(x * C(0.70710678118654752440)));
}
template <class C>
ORRERY_HD C normal_density(C x) {
  return C(0.39894228040143267794) * std::exp(C(-0.5) * x * x);
}
template <class C>
ORRERY_HD C sigmoid(C x) {
  return C(1) / (C(1) + std::exp(-x));
}

}  // namespace orrery::executor
