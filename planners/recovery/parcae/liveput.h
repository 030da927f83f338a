/// Liveput of Parcae: the samples that a sequence of configurations is expected to train while
/// instances vanish. Private to the policy. [Duan et al., NSDI 2024, sections 5 and 6]
#pragma once
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "planners/recovery/kit/unit_grid.h"

namespace orrery::planners {

/// Probabilities that sum to 1, when `dead` of `instances` instances vanish, all sets of them
/// equally likely, and the survivors of a grid are to form `target` pipelines of its depth.
struct Survival {
  double untouched = 0;   ///< Only idle ones vanished.
  double rearranged = 0;  ///< Each stage has `target` instances left: they form new pipelines.
  double short_of = 0;    ///< Some stage has fewer, but one at least: others must change stage.
  double extinct = 0;     ///< Some stage has none: its state is lost.
};
/// Exact, by counting the sets: the product over stages of sum C(D, i) x^i. The paper draws them
/// (Monte Carlo). grid.instances() <= instances, dead <= instances, 0 <= target <= D.
Survival survival(const UnitGrid& grid, int instances, int dead, int target);

/// Seconds that training stops for a change of configuration. [section 5.2]
struct MigrationCosts {
  std::function<double(const UnitGrid&)> intra;    ///< New groups, no state moves.
  std::function<double(const UnitGrid&)> inter;    ///< Instances take the state of another stage.
  std::function<double(const UnitGrid&)> rebuild;  ///< Another depth, or more instances.
  double restart = 0;                              ///< State is lost: from the checkpoint.
};

/// Expected seconds from `from` to `to` when `dead` of `instances` instances vanish.
double expected_migration(const UnitGrid& from, const UnitGrid& to, int instances, int dead,
                          const MigrationCosts& costs);

/// By `from`, `to`, instances and dead.
using ExpectedMigrations = std::map<std::tuple<UnitGrid, UnitGrid, int, int>, double>;

struct LiveputProblem {
  std::vector<int> instances;   ///< Forecast by interval, the first from now on. Not increasing.
  double interval = 60;         ///< s.
  std::vector<UnitGrid> grids;  ///< To choose from; those too large for an interval are left out.
  std::function<double(const UnitGrid&)> samples_per_second;
  /// Seconds until the grid runs in the first interval: what has happened is known.
  std::function<double(const UnitGrid&)> first;
  MigrationCosts costs;
  /// What problems with the same costs have asked for; null: nothing.
  ExpectedMigrations* known = nullptr;
};

struct LiveputPlan {
  std::vector<UnitGrid> grids;  ///< By interval. An empty grid: nothing fits, no samples.
  double samples = 0;
};
/// The sequence with the most expected samples: sum over intervals of samples per second x
/// (interval - migration), not below 0. Exact dynamic program, O(intervals grids^2). Ties: the
/// first grid.
LiveputPlan best_liveput(const LiveputProblem& problem);

}  // namespace orrery::planners
