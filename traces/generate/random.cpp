#include "traces/generate/random.h"

#include <algorithm>
#include <boost/random/gamma_distribution.hpp>
#include <cmath>
#include <numeric>

namespace orrery::traces {
namespace {

Instant uniform_time(Nanoseconds horizon, Rng& rng) {
  return {std::min(horizon.count - 1,
                   static_cast<std::int64_t>(rng.uniform() * static_cast<double>(horizon.count)))};
}

}  // namespace

Nanoseconds draw_duration(const RandomDuration& duration, Rng& rng) {
  double seconds = duration.mean.value;
  if (duration.distribution == DurationShape::exponential) {
    seconds = rng.exponential(1 / seconds);
  } else if (duration.distribution == DurationShape::lognormal) {
    seconds *= std::exp(duration.sigma * (rng.normal() - duration.sigma / 2));
  }
  // A time beyond all traces keeps nanoseconds in range.
  return std::max(to_nanoseconds({std::min(seconds, 4e9)}), Nanoseconds{1});
}

int draw_burst(double mean, Rng& rng) {
  const double u = 1 - rng.uniform();  // In (0, 1].
  if (mean <= 1) return 1;
  return 1 + static_cast<int>(std::min(1e6, std::log(u) / std::log1p(-1 / mean)));
}

std::vector<Instant> draw_renewals(double rate, double shape, Nanoseconds horizon, Rng rng) {
  std::vector<Instant> times;
  if (!(rate > 0)) return times;
  // Mean gap = scale x Gamma(1 + 1 / shape).
  const double scale = 1 / (rate * std::tgamma(1 + 1 / shape));
  // A gap that covers a fixed point has density proportional to length x density: for Weibull,
  // (gap / scale)^shape is then Gamma(1 + 1 / shape)-distributed.
  boost::random::gamma_distribution<double> covering(1 + 1 / shape);
  double at = shape == 1 ? rng.exponential(rate)
                         : rng.uniform() * scale * std::pow(covering(rng), 1 / shape);
  const double end = to_seconds(horizon).value;
  while (at < end) {
    const Instant time = to_instant({at});
    if (time.nanoseconds < horizon.count) times.push_back(time);
    const double unit = rng.exponential(1);
    at += shape == 1 ? unit / rate : scale * std::pow(unit, 1 / shape);
  }
  return times;
}

std::vector<Instant> draw_uniform(std::int64_t count, Nanoseconds horizon, Rng rng) {
  std::vector<Instant> times;
  for (std::int64_t i = 0; i < count; ++i) times.push_back(uniform_time(horizon, rng));
  std::sort(times.begin(), times.end());
  return times;
}

std::vector<std::int64_t> round_counts(const std::vector<double>& expected) {
  std::vector<std::int64_t> counts;
  for (const double e : expected) counts.push_back(static_cast<std::int64_t>(std::floor(e)));
  const auto total = static_cast<std::int64_t>(
      std::llround(std::accumulate(expected.begin(), expected.end(), 0.0)));
  std::vector<std::size_t> order(expected.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return expected[a] - std::floor(expected[a]) > expected[b] - std::floor(expected[b]);
  });
  auto missing = total - std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  for (std::size_t i = 0; missing > 0 && i < order.size(); ++i, --missing) ++counts[order[i]];
  return counts;
}

}  // namespace orrery::traces
