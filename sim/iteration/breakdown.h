/// Mean over ranks of where the time of an iteration goes (models/ir/breakdown.h).
#pragma once
#include <span>

#include "models/interfaces/evaluator.h"
#include "models/ir/breakdown.h"
#include "models/ir/program.h"

namespace orrery::sim {

using ir::rank_breakdown;
using ir::RankBreakdown;

/// Mean over ranks, each counted as often as it stands for devices.
models::Breakdown mean_breakdown(const ir::Program& program, std::span<const RankBreakdown> ranks);

}  // namespace orrery::sim
