/// What the generators draw. Private to traces/.
#pragma once
#include <cstdint>
#include <vector>

#include "models/base/rng.h"
#include "models/base/time.h"
#include "traces/generate/settings.h"

namespace orrery::traces {

/// At least one nanosecond.
Nanoseconds draw_duration(const RandomDuration& duration, Rng& rng);

/// 1 + a geometric number; mean `mean` >= 1.
int draw_burst(double mean, Rng& rng);

/// Times in [0, horizon) of a stationary renewal process with `rate` events per second and Weibull
/// gaps of this shape (1: a Poisson process). The first gap is the residual of a gap that covers
/// time 0, so that the expected number of events is rate x horizon for every shape.
std::vector<Instant> draw_renewals(double rate, double shape, Nanoseconds horizon, Rng rng);

/// `count` independent uniform times, ascending.
std::vector<Instant> draw_uniform(std::int64_t count, Nanoseconds horizon, Rng rng);

/// Whole numbers near `expected` whose sum is that of `expected`, rounded (largest remainders; of
/// equal ones the first).
std::vector<std::int64_t> round_counts(const std::vector<double>& expected);

}  // namespace orrery::traces
