/// Exponential moving average: the history of costs by which a search decides what to try next.
#pragma once
#include <optional>

#include "models/base/check.h"

namespace orrery::planners {

/// average <- (1 - smoothing) * average + smoothing * sample; the first sample is taken as it is,
/// so that the start value does not bias the history. [HexiScale section 4.4 asks for "the
/// historical moving average of costs" and leaves the kind open.]
class MovingAverage {
 public:
  /// `smoothing` in (0, 1]: the weight of the newest sample. 1 keeps only that one.
  explicit MovingAverage(double smoothing) : smoothing_(smoothing) {
    ORRERY_CHECK(smoothing > 0 && smoothing <= 1, "smoothing is {}", smoothing);
  }
  void add(double sample) { value_ = value_ ? *value_ + smoothing_ * (sample - *value_) : sample; }
  /// Nothing before the first sample.
  std::optional<double> value() const { return value_; }

 private:
  double smoothing_;
  std::optional<double> value_;
};

}  // namespace orrery::planners
