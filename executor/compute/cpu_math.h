/// Scalar functions and sums that the CPU kernels share. Sums run in double over eight lanes in a
/// fixed order: the compiler can use vector registers, and a sum depends on its terms alone.
#pragma once
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace orrery::executor {

/// e^x to 2 units in the last place for x above -87, at least e^-87 below, infinity above 88.
/// Written without branches, so that loops over it become vector code: x = n ln 2 + r with
/// |r| <= ln 2 / 2, e^r by its Taylor series to the seventh power (next term: 6e-9). The two parts
/// of ln 2 keep n ln 2 exact [Cody and Waite 1980].
inline float exponential(float x) {
  constexpr float kLowest = -87.0F, kHighest = 88.0F;
  constexpr float kRound = 12582912.0F;  // 1.5 x 2^23: adding it rounds to an integer.
  const float limited = x < kLowest ? kLowest : (x > kHighest ? kHighest : x);
  const float shifted = limited * 1.44269504F + kRound;
  const float n = shifted - kRound;
  const float r = (limited - n * 0.693359375F) + n * 2.12194440e-4F;
  float sum = 1.0F / 5040;
  sum = sum * r + 1.0F / 720;
  sum = sum * r + 1.0F / 120;
  sum = sum * r + 1.0F / 24;
  sum = sum * r + 1.0F / 6;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  // The low bits of `shifted` are n in two's complement; n + 127 is the exponent field of 2^n.
  const std::uint32_t power = (std::bit_cast<std::uint32_t>(shifted) + 127U) << 23;
  return (x > kHighest ? x * 1e38F : 1.0F) * (sum * std::bit_cast<float>(power));
}
inline double exponential(double x) { return std::exp(x); }

/// Sum of term(i) over i < count, in double.
template <class Term>
double lane_sum(std::size_t count, const Term& term) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<double>(term(i + lane));
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) lanes[lane] += static_cast<double>(term(i));
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

}  // namespace orrery::executor
