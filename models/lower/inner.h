/// Collectives inside Forward and Backward ops. Private to models/lower.
#pragma once
#include <vector>

#include "models/ir/plan.h"
#include "models/ir/program.h"
#include "models/lower/program_builder.h"
#include "models/lower/zero_gathers.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// One pass of a micro-batch through blocks [first, last] of a segment's group.
struct InnerQuery {
  const ir::Segment* segment = nullptr;
  int group = 0;
  BlockId first;
  BlockId last;
  bool backward = false;
};

/// What the devices of the query's group exchange in the pass: tensor, sequence and expert
/// parallelism, ZeRO-3's gathers. Equal collectives are listed once, with their count; groups are
/// entered into `builder`. Full recompute adds the collectives of the repeated forward pass.
std::vector<ir::InnerCollective> inner_collectives(const InnerQuery& query,
                                                   const Workload& workload,
                                                   const ZeroGathers& gathers,
                                                   ProgramBuilder& builder);

/// The same for all groups that hold the experts together with the query's group, side by side:
/// they meet at every dispatch. Empty where the pass has no experts that are divided, and where the
/// groups do not exchange alike (other degrees or ZeRO gathers; other samples of groups of several
/// devices).
std::vector<ir::InnerCollective> joint_collectives(const InnerQuery& query,
                                                   const Workload& workload,
                                                   const ZeroGathers& gathers,
                                                   ProgramBuilder& builder);

}  // namespace orrery::models
