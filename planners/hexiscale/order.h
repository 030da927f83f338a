/// The order of GPU groups in a pipeline: greedy search over paths. [HexiScale, 4.3 step (iii)]
#pragma once
#include <vector>

namespace orrery::planners {

/// Square matrices by group, row-major.
struct GroupLinks {
  int groups = 0;
  std::vector<double> bandwidth;  ///< [from x to] Ranks the neighbors.
  std::vector<double> hop;        ///< [from x to] Cost of `to` following `from`.
};

/// For each group the others, the highest bandwidth to it first (ties: lower number).
std::vector<std::vector<int>> neighbors_by_bandwidth(const GroupLinks& links);

/// For each group as start, the path with the smallest sum of hops among those in which every
/// group is followed by one of the `tau` groups left with the highest bandwidth to it (ties: lower
/// number). At most 4,096 partial paths are followed for each start; the first path found is the
/// plain greedy one.
std::vector<std::vector<int>> top_tau_paths(const GroupLinks& links, int tau);

}  // namespace orrery::planners
