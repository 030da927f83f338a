/// Physical quantities whose dimensions the compiler checks. Always base units inside:
/// seconds, bytes, floating-point operations, US dollars, joules. Raw doubles appear only at the
/// borders (SimGrid, protobuf, CSV).
#pragma once
#include <cmath>
#include <compare>
#include <cstdint>

namespace orrery {

/// A double with dimension seconds^S * bytes^B * flop^F * dollars^D * joules^J.
/// Integers are exact up to 2^53 (9 PB), so byte counts lose nothing.
template <int S, int B, int F, int D, int J>
struct Quantity {
  double value = 0;
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator-() const { return {-value}; }
  constexpr Quantity& operator+=(Quantity other) {
    value += other.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value -= other.value;
    return *this;
  }
  constexpr Quantity& operator*=(double factor) {
    value *= factor;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return {a.value + b.value}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return {a.value - b.value}; }
  friend constexpr Quantity operator*(Quantity a, double k) { return {a.value * k}; }
  friend constexpr Quantity operator*(double k, Quantity a) { return {a.value * k}; }
  friend constexpr Quantity operator/(Quantity a, double k) { return {a.value / k}; }
};

namespace detail {
template <int S, int B, int F, int D, int J>
constexpr auto collapse(double value) {
  if constexpr (S == 0 && B == 0 && F == 0 && D == 0 && J == 0) {
    return value;
  } else {
    return Quantity<S, B, F, D, J>{value};
  }
}
}  // namespace detail

template <int S1, int B1, int F1, int D1, int J1, int S2, int B2, int F2, int D2, int J2>
constexpr auto operator*(Quantity<S1, B1, F1, D1, J1> a, Quantity<S2, B2, F2, D2, J2> b) {
  return detail::collapse<S1 + S2, B1 + B2, F1 + F2, D1 + D2, J1 + J2>(a.value * b.value);
}
template <int S1, int B1, int F1, int D1, int J1, int S2, int B2, int F2, int D2, int J2>
constexpr auto operator/(Quantity<S1, B1, F1, D1, J1> a, Quantity<S2, B2, F2, D2, J2> b) {
  return detail::collapse<S1 - S2, B1 - B2, F1 - F2, D1 - D2, J1 - J2>(a.value / b.value);
}
template <int S, int B, int F, int D, int J>
constexpr auto operator/(double k, Quantity<S, B, F, D, J> q) {
  return Quantity<-S, -B, -F, -D, -J>{k / q.value};
}

using Seconds = Quantity<1, 0, 0, 0, 0>;  ///< A duration, never a point in time (see time.h).
using Bytes = Quantity<0, 1, 0, 0, 0>;
using Flops = Quantity<0, 0, 1, 0, 0>;  ///< An amount of work; a rate is FlopsPerSecond.
using Dollars = Quantity<0, 0, 0, 1, 0>;
using Joules = Quantity<0, 0, 0, 0, 1>;
using BytesPerSecond = Quantity<-1, 1, 0, 0, 0>;
using FlopsPerSecond = Quantity<-1, 0, 1, 0, 0>;
using DollarsPerSecond = Quantity<-1, 0, 0, 1, 0>;
using Watts = Quantity<-1, 0, 0, 0, 1>;

inline namespace literals {
constexpr Seconds operator""_s(long double v) { return {static_cast<double>(v)}; }
constexpr Seconds operator""_s(unsigned long long v) { return {static_cast<double>(v)}; }
constexpr Seconds operator""_ms(long double v) { return {static_cast<double>(v) * 1e-3}; }
constexpr Seconds operator""_us(long double v) { return {static_cast<double>(v) * 1e-6}; }
constexpr Bytes operator""_B(unsigned long long v) { return {static_cast<double>(v)}; }
constexpr Bytes operator""_MiB(unsigned long long v) { return {static_cast<double>(v) * 0x1p20}; }
constexpr Bytes operator""_GiB(unsigned long long v) { return {static_cast<double>(v) * 0x1p30}; }
constexpr Bytes operator""_GB(unsigned long long v) { return {static_cast<double>(v) * 1e9}; }
constexpr BytesPerSecond operator""_GBps(long double v) { return {static_cast<double>(v) * 1e9}; }
constexpr BytesPerSecond operator""_GBps(unsigned long long v) {
  return {static_cast<double>(v) * 1e9};
}
constexpr FlopsPerSecond operator""_TFLOPS(long double v) {
  return {static_cast<double>(v) * 1e12};
}
constexpr FlopsPerSecond operator""_TFLOPS(unsigned long long v) {
  return {static_cast<double>(v) * 1e12};
}
}  // namespace literals

}  // namespace orrery
