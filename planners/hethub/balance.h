/// How well layers can be balanced over GPU types whose stages are within one layer of each other:
/// the bound of HetHub's depth-first search. [HetHub, section 3.3.2, rules 1 and 2]
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "planners/kit/integers.h"

namespace orrery::planners {

/// Places for stages on one GPU type.
struct HethubType {
  int places = 0;
  /// Seconds of a stage of n layers, non-decreasing in n; infinite where they never fit in memory.
  std::vector<double> time;

  /// Seconds of the longest stage when the type has `layers` layers in all.
  double longest(int layers) const {
    if (layers == 0) return 0;
    if (places == 0) return kNever;
    return time[(layers - 1) / places + 1];
  }
};

/// Dynamic program over the types: O(types * layers^2).
class HethubBalance {
 public:
  HethubBalance(const std::vector<HethubType>& types, int layers)
      : width_(layers + 1), best_((types.size() + 1) * width_, kNever) {
    best_[types.size() * width_] = 0;
    for (std::size_t k = types.size(); k-- > 0;) {
      for (int n = 0; n <= layers; ++n) {
        double& best = best_[k * width_ + n];
        for (int own = 0; own <= n; ++own) {
          best = std::min(best, std::max(types[k].longest(own), at(k + 1, n - own)));
        }
      }
    }
  }

  /// The shortest possible longest stage when the types from the `type`-th one on have `layers`
  /// layers in all; infinite if they cannot hold them.
  double at(std::size_t type, int layers) const { return best_[type * width_ + layers]; }

 private:
  std::size_t width_;
  std::vector<double> best_;
};

}  // namespace orrery::planners
