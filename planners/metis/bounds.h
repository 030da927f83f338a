/// Lower bounds of Metis's search: over all permutations of device groups at once, and along a
/// path. They leave out only what cannot be among the best, so that the result is that of the full
/// search.
#pragma once
#include <utility>
#include <vector>

#include "planners/metis/groups.h"
#include "planners/metis/progress.h"
#include "planners/metis/stages.h"

namespace orrery::planners {

/// Device groups and a number of micro-batches, with a tensor-parallel degree for each stage.
struct MetisPath {
  const std::vector<int>* sizes = nullptr;
  std::vector<int> first;  ///< Rank at which each stage starts.
  std::vector<int> step;   ///< Exponent of the tensor-parallel degree of each stage.
  int batch = 0;           ///< Position in MetisProblem::batches.
  int costed = 0;          ///< Stages that the estimate counts.

  int stages() const { return static_cast<int>(sizes->size()); }
  int size(int stage) const { return (*sizes)[stage]; }
};

/// The permutations of some groups as a lattice: a state says how many of each group are placed.
struct MetisLattice {
  explicit MetisLattice(const DeviceGroups& device_groups);

  std::vector<std::vector<int>> groups;  ///< Distinct.
  std::vector<int> counts;
  std::vector<int> first;      ///< The first permutation, as positions in `groups`.
  std::vector<int> strides;    ///< State that one more of a group adds.
  std::vector<int> rank;       ///< By state: ranks that are placed.
  std::vector<int> stage;      ///< By state: stages that are placed.
  std::vector<double> room;    ///< By state and group: layers that the next group takes.
  std::vector<double> suffix;  ///< By state: most layers that the rest takes; negative: none.
  int stages = 0;
  int placed(std::size_t group, int state) const {
    return state / strides[group] % (counts[group] + 1);
  }
};

/// Bounds in one sequence of GPU types. Keeps references and buffers; not for concurrent use.
class MetisBounds {
 public:
  MetisBounds(const MetisProblem& problem, MetisStages& stages, const MetisProgress& progress);

  /// Each size has a degree that gives every replica a number of samples that was measured.
  bool possible(const MetisLattice& lattice, int batch) const;
  /// Fills `room` and `suffix` for a number of micro-batches; false when no permutation can be
  /// among the best.
  bool weigh(MetisLattice& lattice, int batch);
  /// No plan further along the path can be among the best. Stage times are at least those of the
  /// best choices that are left, and the slowest stage at least what lets all layers find a place.
  bool hopeless(const MetisPath& path);

 private:
  double slack(const MetisLattice& lattice, int batch);
  bool has_room(const MetisPath& path, double slack);
  double least_sum();
  std::pair<double, double> room(int first, int size, int batch, int step, int in_flight,
                                 double slack);
  int in_flight(int stages, int stage, int batch) const;

  const MetisProblem& problem_;
  const MetisTables& tables_;
  MetisStages& stages_;
  const MetisProgress& progress_;
  double inner_share_ = 0;                        ///< Of the demand, without embedding and head.
  std::vector<std::pair<double, double>> rooms_;  ///< (time of a layer, layers) of each stage.
};

}  // namespace orrery::planners
