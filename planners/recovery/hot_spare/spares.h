/// How many spare nodes to keep.
#pragma once

namespace orrery::planners {

/// The least s with P(Binomial(trials, probability) <= s) >= quantile; probability and quantile in
/// [0, 1).
int binomial_quantile(int trials, double probability, double quantile);

}  // namespace orrery::planners
