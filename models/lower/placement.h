/// Who is where: ranks, and the chain of elements through which a micro-batch of a pipeline passes.
/// Private to models/lower.
#pragma once
#include <cstdint>
#include <vector>

#include "models/ir/plan.h"
#include "models/ir/program.h"
#include "models/lower/lower.h"

namespace orrery::models {

/// One segment of one stage, in the order in which micro-batches pass: chunk by chunk, in a chunk
/// stage by stage, in a stage segment by segment.
struct Element {
  int pipeline = 0;
  int stage = 0;
  const ir::Segment* segment = nullptr;
  std::vector<std::int32_t> infos;         ///< By group: index into Program::segments.
  std::vector<std::vector<RankId>> ranks;  ///< By group: its ranks, in group order.
};

struct Placement {
  std::vector<ir::Rank> ranks;
  std::vector<ir::SegmentInfo> segments;
  std::vector<std::vector<Element>> elements;  ///< By pipeline.
  std::vector<RankId> rank_of;                 ///< By device id; invalid when unused.
};

/// A stage is collapsed to one rank for each group when all of its segments have the same groups;
/// a stage whose strategy changes inside keeps a rank for each device.
Placement place(const ir::Plan& plan, const Cluster& cluster, bool collapsed);

}  // namespace orrery::models
