/// Who is where: ranks, and the chain of elements through which a micro-batch of a pipeline passes.
/// For models/lower and models/reshard.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "models/base/id_vector.h"
#include "models/ir/plan.h"
#include "models/ir/program.h"
#include "models/lower/lower.h"

namespace orrery::models {

/// One segment of one stage, in the order in which micro-batches pass: chunk by chunk, in a chunk
/// stage by stage, in a stage segment by segment. Under ScheduleEntry::both_ways a micro-batch
/// passes one chunk only.
struct PlacedSegment {
  int pipeline = 0;
  int stage = 0;
  const ir::Segment* segment = nullptr;
  std::vector<std::int32_t> infos;         ///< By group: index into Program::segments.
  std::vector<std::vector<RankId>> ranks;  ///< By group: its ranks, in group order.
};

/// An element of another pipeline that computes in place of one of the pipeline's own.
/// [ReCycle, SOSP 2024]
struct Detour {
  int position = 0;  ///< Of the element that it replaces, in the chain.
  int to_pipeline = 0;
  PlacedSegment element;  ///< On the other pipeline's ranks; its infos name the own pipeline.
};

struct Placement {
  std::vector<ir::Rank> ranks;
  std::vector<ir::SegmentInfo> segments;
  std::vector<std::vector<PlacedSegment>> elements;  ///< By pipeline: its chain.
  std::vector<std::vector<Detour>> detours;          ///< By pipeline.
  /// By pipeline, stage: the copy of the next stage that the stage keeps (Redundancy::next_stage);
  /// `stage` and ranks are those of the keeper. Empty without redundancy.
  std::vector<std::vector<PlacedSegment>> shadows;
  std::vector<std::unique_ptr<const ir::Segment>> shadow_segments;  ///< Of `shadows`.

  /// Elements of a pipeline are numbered through: the chain, the detours, the shadows.
  int count(int pipeline) const;
  const PlacedSegment& element(int pipeline, int number) const;
  /// By position in the chain: the numbers of the elements that micro-batch `micro_batch` passes.
  std::vector<int> route(const ir::Plan& plan, int pipeline, int micro_batch) const;
  IdVector<DeviceId, RankId> rank_of;  ///< Invalid when unused.
};

/// A stage that leaves all of its micro-batches to others and takes none: its devices are idle, or
/// lost.
bool is_idle(const ir::Plan& plan, int pipeline, int stage);

/// Why the plan's redundancy has no place, with the paths of the plan's YAML; empty without
/// redundancy. next_stage needs two stages in each pipeline, one segment in each stage, no ZeRO, no
/// expert parallelism, no virtual stages and no reroutes.
std::vector<PlanDefect> find_redundancy_defects(const ir::Plan& plan);

/// `plan` has no redundancy defects. Idle stages have no ranks. A stage is collapsed to one rank
/// for each group when all of its segments have the same groups; a stage whose strategy changes
/// inside keeps a rank for each device.
Placement place(const ir::Plan& plan, const Cluster& cluster, bool collapsed);

}  // namespace orrery::models
