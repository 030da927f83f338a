#include "planners/recovery/hot_spare/spares.h"

#include <boost/math/distributions/binomial.hpp>

namespace orrery::planners {

int binomial_quantile(int trials, double probability, double quantile) {
  const boost::math::binomial_distribution<double> failures(trials, probability);
  int spares = 0;
  while (spares < trials && cdf(failures, spares) < quantile) ++spares;
  return spares;
}

}  // namespace orrery::planners
