/// Collectives inside Forward and Backward ops. Private to models/lower.
#pragma once
#include <cstdint>
#include <vector>

#include "models/ir/plan.h"
#include "models/ir/program.h"
#include "models/lower/draft.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// What one pass of `samples` samples through blocks [first, last] of a segment's group exchanges.
struct InnerQuery {
  const ir::Segment* segment = nullptr;
  int group = 0;
  BlockId first;
  BlockId last;
  bool backward = false;
  /// Replicas of the segment at the same position, for ZeRO-3 gathers: devices by position in the
  /// group; empty: none.
  const std::vector<std::vector<DeviceId>>* zero_peers = nullptr;
};

std::vector<ir::InnerCollective> inner_collectives(const InnerQuery& query,
                                                   const Workload& workload,
                                                   double bytes_per_weight, Draft& draft);

}  // namespace orrery::models
