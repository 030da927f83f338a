/// Equal pipelines over units, which unit computes which stage, and how the survivors of a loss are
/// rearranged. [Parcae, Duan et al., NSDI 2024, section 5: intra-stage and inter-stage migration]
#pragma once
#include <optional>
#include <vector>

#include "models/ir/plan.h"
#include "planners/recovery/kit/unit_chains.h"

namespace orrery::planners {

/// D pipelines of P stages, each on a unit of its own; the other units are idle.
struct UnitGrid {
  int pipelines = 0;
  int stages = 0;
  int instances() const { return pipelines * stages; }
  auto operator<=>(const UnitGrid&) const = default;
};

/// Pipelines and stages of a plan; pipelines of unequal depth are no grid: empty.
UnitGrid grid_of(const ir::Plan& plan);

/// The units of a plan that was running.
struct GridUnits {
  UnitGrid grid;  ///< Empty: the plan was no grid.
  /// By pipeline, stage: the unit, if it is alive.
  std::vector<std::vector<std::optional<Unit>>> units;
  /// Survivors of the stage that has fewest.
  int fewest() const;
};

/// The units of `live` in the plan. No grid when stages are not units of `live`'s width.
GridUnits grid_units(const ir::Plan& plan, const std::vector<Unit>& live);

/// Units by pipeline and stage. If the depth stays, the pipelines with most survivors stay, holes
/// are filled from the same stage of the others (no state moves), then by what is left, lowest ids
/// first. Another depth: units in their order. `grid` needs no more units than there are.
std::vector<std::vector<Unit>> rearrange(const UnitGrid& grid, const GridUnits& survivors,
                                         const std::vector<Unit>& live);

}  // namespace orrery::planners
