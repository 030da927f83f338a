/// What Metis (ATC 2024, Table 4) is compared with: for given device groups and micro-batches every
/// pair of data- and tensor-parallel degrees of every stage, and every division of the layers over
/// the stages, instead of one path of degrees and one division in proportion to speed. Without
/// bounds each plan is looked at and counted; with bounds an exact program over the stages finds
/// the best division of each choice of degrees, and what cannot win is left out. Also the number of
/// all plans in closed form, so that a search that does not end can say how much is left.
#pragma once
#include <boost/multiprecision/cpp_int.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planners/metis/bounds.h"
#include "planners/metis/path.h"
#include "planners/metis/progress.h"
#include "planners/metis/stages.h"

namespace orrery::planners {

/// What a full search would look at without bounds.
struct MetisFullSize {
  using Count = boost::multiprecision::uint256_t;
  Count plans = 0;
  Count combinations = 0;  ///< Of device groups, micro-batches and degrees.
  Count nodes = 0;         ///< Device groups and micro-batches.

  std::string in_words() const;
};

/// The full search in one sequence of GPU types. Keeps references and tables; not for concurrent
/// use.
class MetisFull {
 public:
  MetisFull(const MetisProblem& problem, MetisStages& stages, MetisBounds& bounds,
            MetisPaths& paths, MetisProgress& progress);

  /// All degrees of the stages from `stage` on; those before it are chosen.
  void explore(MetisPath& path, int stage = 0);
  /// Adds what explore() would look at without bounds for a number of stages. Device groups and
  /// micro-batches are those that the algorithm, too, follows a path for.
  void count(int stages, int devices, MetisFullSize& size) const;

 private:
  class Divisions;
  double fixed_cost(const MetisPath& path) const;
  const std::vector<double>& stage_times(const MetisPath& path, int stage);
  const std::vector<int>& stage_reach(const MetisPath& path, int stage);
  template <class Visit>
  void count_orders(const MetisLattice& lattice, int batch, const Visit& visit) const;

  const MetisProblem& problem_;
  const MetisTables& tables_;
  MetisStages& stages_;
  MetisBounds& bounds_;
  MetisPaths& paths_;
  MetisProgress& progress_;
  bool ended_ = false;  ///< The budget ended among the divisions of a combination.
  std::map<const MetisStageChoice*, std::vector<double>> times_;
  std::map<std::pair<const MetisStageChoice*, int>, std::vector<int>> reach_;
};

}  // namespace orrery::planners
