/// Which unit stands where in Parcae's grids, and how the survivors are rearranged. Private to the
/// policy. [Duan et al., NSDI 2024, section 5: intra-stage and inter-stage migration]
#pragma once
#include <optional>
#include <vector>

#include "models/ir/plan.h"
#include "planners/recovery/kit/unit_chains.h"
#include "planners/recovery/parcae/liveput.h"

namespace orrery::planners {

/// Pipelines and stages of a plan; pipelines of unequal depth are no grid: empty.
ParcaeGrid grid_of(const ir::Plan& plan);

struct ParcaePlaces {
  ParcaeGrid grid;  ///< Before; empty: no grid ran.
  /// By pipeline, stage: the unit that still lives.
  std::vector<std::vector<std::optional<Unit>>> units;
  /// Survivors of the stage that has fewest.
  int fewest() const;
};

/// Where the units of `live` stand in the plan. No grid when stages are no units of `live`'s width.
ParcaePlaces places_of(const ir::Plan& plan, const std::vector<Unit>& live);

/// Units by pipeline and stage. The depth stays: the pipelines with most survivors stay, holes are
/// filled from the same stage of the others (no state moves), then by what is left, lowest ids
/// first. Another depth: units in their order. `grid` needs no more units than there are.
std::vector<std::vector<Unit>> place_units(const ParcaeGrid& grid, const ParcaePlaces& places,
                                           const std::vector<Unit>& live);

}  // namespace orrery::planners
