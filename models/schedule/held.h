/// What a stage holds while it runs its passes. Private to models/schedule.
#pragma once
#include <algorithm>
#include <vector>

#include "models/schedule/schedule.h"

namespace orrery::models {

/// Most passes of `from` that no pass of `to` has followed yet.
inline int most_between(const std::vector<StagePass>& passes, ir::OpKind from, ir::OpKind to) {
  int held = 0;
  int most = 0;
  for (const StagePass& pass : passes) {
    if (pass.kind == from) most = std::max(most, ++held);
    if (pass.kind == to) --held;
  }
  return most;
}

}  // namespace orrery::models
