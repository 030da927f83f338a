/// Multilevel k-way partition of a complete graph: how HexiScale groups devices into pipelines, and
/// the devices of a pipeline into stages. [HexiScale, section 4.2 and 4.3 step (i)]
#pragma once
#include <vector>

#include "models/base/rng.h"
#include "planners/kit/graph.h"

namespace orrery::planners {

/// kMinimize leaves the fast links inside the parts (for pipelines), kMaximize between them (for
/// data parallelism) [HexiScale, section 4.4].
enum class CutObjective { kMinimize, kMaximize };

struct PartitionOptions {
  CutObjective objective = CutObjective::kMinimize;
  /// Largest part weight over mean part weight, >= 1: a hyperparameter of the paper.
  double max_imbalance = 1.1;
  /// Coarsening stops at this many vertices, or at 3 per part where that is more.
  int coarsen_to = 20;
  /// Sweeps of Kernighan-Lin over the pairs of parts at each level.
  int refinement_passes = 4;
  /// Independent runs for up to 8 parts, of which the best is returned. For more parts, which take
  /// longer, starts * 8 / parts, at least one.
  int starts = 4;
};

/// The part, 0 ... parts - 1, of each vertex. Parts are numbered by their first vertex; none is
/// empty. Steps: (i) coarsen by heavy-edge matching (lightest edges when maximizing); (ii)
/// recursive bisection of the coarsest graph, each half grown greedily from random seeds, into
/// weights in proportion to the parts to come; (iii) project back level by level; (iv)
/// Kernighan-Lin at each level. Among the states it meets, those within max_imbalance come first,
/// then the better cut. Where no such state is met (one vertex may outweigh a part) the excess is
/// kept as small as was found: read it with imbalance(). Equal graph, options and generator state
/// give equal parts. Needs 1 <= parts <= vertices. Deviation: matching compares mean edge weight
/// per pair of original vertices, not the sum, since in a complete graph the sum favors large
/// clusters. Time about O(vertices^2 * levels) + Kernighan-Lin, 2 to 25 ms for 320 vertices in all.
std::vector<int> partition(const WeightedGraph& graph, int parts, const PartitionOptions& options,
                           Rng& rng);

/// Sum of the weights of edges whose ends lie in different parts, each edge once.
/// [HexiScale, Eq. 2, with pairs of parts taken as unordered]
double cut(const WeightedGraph& graph, const std::vector<int>& assignment);

/// Largest part weight over mean part weight, >= 1; 1 where all weights are 0. The number of parts
/// is the largest entry of `assignment` + 1. [HexiScale, section 4.2]
double imbalance(const WeightedGraph& graph, const std::vector<int>& assignment);

}  // namespace orrery::planners
