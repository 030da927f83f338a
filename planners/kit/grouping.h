/// Device groups: GPUs of a few kinds are dealt out to as many groups as is best, so that the
/// weakest group is strong and no pipeline is long. Solves AutoHet's Eq. 3 exactly over counts of
/// GPUs by kind: equal GPUs, and groups in another order, are never told apart.
///
/// With K micro-batches a group of power g and P units has G = g K / (K + P - 1) [Eq. 2], so that
/// G >= theta says: sum over its units of (K g_i - theta) >= theta (K - 1). For a fixed theta the
/// grouping is a bin covering with linear weights, and what the weights exceed the bins' needs by
/// is the waste that all groups together may have. Searches go by this bound.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace orrery::planners {

/// Units of each kind in a group.
using UnitCounts = std::vector<int>;

struct GroupingProblem {
  UnitCounts counts;           ///< Units of each kind, all of which are to be dealt out [Eq. 3e].
  std::vector<double> power;   ///< Of a unit of each kind, g > 0.
  std::vector<double> memory;  ///< Of a unit of each kind, >= 0.
  double least_memory = 0;     ///< Sum over the units of a group is at least this [Eq. 3b].
  int micro_batches = 1;       ///< K >= 1 of Eq. 2.
  int most_units = 1;          ///< In a group.
  int least_groups = 1;
  int most_groups = 1;
  /// What else a group must satisfy with that many groups; null: nothing. May depend on
  /// nothing but its arguments.
  std::function<bool(const UnitCounts& group, int groups)> admits;
};

/// G of a group [Eq. 2]; 0 for an empty one.
double effective_power(const GroupingProblem& problem, const UnitCounts& group);

/// Ends of a search other than its own.
struct GroupingLimits {
  std::int64_t most_work = 0;  ///< Partial groupings; at least 1.
  /// Work after which a number of groups is put off until the others had as much.
  std::int64_t first_share = 1 << 20;
  int most_ties = 1;           ///< Optimal groupings to return.
  std::function<bool()> stop;  ///< Asked now and then; null: never.
};

struct GroupingResult {
  /// D min G [Eq. 3a] of the best grouping; 0 when there is none.
  double objective = 0;
  /// Groupings with that objective (to 1e-12), fewer groups first: of each one representative of
  /// all that differ in the order of groups only. Groups of a grouping have no order of their own.
  std::vector<std::vector<UnitCounts>> groupings;
  double bound = 0;          ///< No grouping is better than this; the objective when `exact`.
  bool exact = true;         ///< The objective is proved to be the optimum.
  bool all_ties = true;      ///< `groupings` holds all that have it.
  bool ended_early = false;  ///< By a limit.
  std::int64_t work = 0;     ///< Groups looked at as part of a partial grouping.
};

/// Maximizes D min_j G_j over all ways to split the units into D non-empty groups, least_groups <=
/// D <= most_groups. For each D, most promising bound first: patterns (counts of one group) with
/// G >= best / D; then bisection over their values of G, deciding each by depth-first search over
/// remaining counts with memory of dead ends. The next group always takes a unit of the first kind
/// that is left, so that groups are not permuted; kinds are tried strongest first.
GroupingResult best_groupings(const GroupingProblem& problem, const GroupingLimits& limits);

}  // namespace orrery::planners
