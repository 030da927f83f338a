/// alpha + bytes / bandwidth, piecewise in the size of the message: how many pieces, and where.
#pragma once
#include <cstddef>
#include <vector>

namespace orrery::calibration {

struct SizedTime {
  double bytes = 0;
  double seconds = 0;  ///< Positive.
};

/// Holds from `from` bytes up to the next piece.
struct TimeSegment {
  double from = 0;
  double latency = 0;   ///< Seconds.
  double per_byte = 0;  ///< Seconds; positive.
};

inline constexpr int kMaxSegments = 4;
/// Distinct sizes that each segment needs: one more than it has parameters.
inline constexpr int kMinSizesPerSegment = 3;
/// Distinct sizes that are looked at; the time grows with more than their cube.
inline constexpr std::size_t kMostSizes = 64;
/// Relative errors below this are not worth another segment: timers and medians are no better.
inline constexpr double kWorthwhileError = 0.005;

/// For each number of segments, the borders among the sizes that minimize Huber's loss of the
/// relative error (fit_relative inside each segment), by dynamic programming over pairs of borders;
/// only such that the time never falls where one segment ends and the next begins. Of these the
/// number with the least Bayesian information criterion, N ln(loss / N) + P ln N [Schwarz 1978],
/// with P = 5 K - 3 for K segments: two parameters each, and three for each border, since the best
/// of many borders fits noise too [Zhang and Siegmund 2007]. The first segment starts at 0 bytes.
/// Of more than kMostSizes distinct sizes those count that are about evenly spaced in log(bytes),
/// the least and the largest among them. `times` need not be sorted, and sizes may repeat. Fewer
/// than two distinct sizes give a latency only, with a bandwidth so large that it does not matter;
/// no times, no segments.
std::vector<TimeSegment> fit_segments(std::vector<SizedTime> times);

/// Seconds of a message.
double time_of(const std::vector<TimeSegment>& segments, double bytes);

}  // namespace orrery::calibration
