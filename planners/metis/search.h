/// The search of Metis (ATC 2024, Algorithm 1): sequences of GPU types x device groups x numbers of
/// micro-batches, and for each a single path of intra-stage plans that starts from pure data
/// parallelism and raises the tensor-parallel degree where memory is tightest. Plans that cannot
/// beat the best ones are left out by lower bounds, which does not change the result: branch and
/// bound over the permutations of device groups, and along each path.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planners/metis/bounds.h"
#include "planners/metis/full.h"
#include "planners/metis/path.h"
#include "planners/metis/placement.h"
#include "planners/metis/progress.h"
#include "planners/metis/stages.h"

namespace orrery::planners {

/// Permutations of the GPU types of the input's devices, the one that the settings choose first; at
/// most kMostMetisOrders.
std::vector<std::vector<int>> metis_type_orders(const MetisProblem& problem);
inline constexpr std::size_t kMostMetisOrders = 5040;  ///< All of up to seven types.

/// What belongs to one sequence of GPU types.
struct MetisSequence {
  MetisSequence(const MetisProblem& problem, std::vector<int> types, MetisProgress& progress)
      : placement(problem.input, problem.settings.as_published(), std::move(types)),
        stages(problem.input, problem.settings, problem.tables, placement, problem.batches,
               problem.recompute),
        bounds(problem, stages, progress),
        paths(problem, stages, bounds, progress),
        full(problem, stages, bounds, paths, progress) {}
  MetisSequence(const MetisSequence&) = delete;

  MetisPlacement placement;
  MetisStages stages;
  MetisBounds bounds;
  MetisPaths paths;
  MetisFull full;
};

/// The search as the paper says.
class MetisSearch {
 public:
  /// Keeps references.
  MetisSearch(const MetisProblem& problem, MetisProgress& progress);
  /// Adds notes about what was not searched.
  void run();

 private:
  /// Device groups of one number of stages in one sequence of types.
  struct Cell {
    int stages = 1;
    std::int64_t leaders = 0;    ///< First permutations that were examined ahead.
    std::int64_t partition = 0;  ///< Where to go on: sizes,
    int batch = 0;               ///< number of micro-batches (position in batches),
    std::vector<int> next;       ///< and permutation, as positions in MetisLattice::groups.
    bool finished = false;
  };
  struct Cells {
    std::vector<int> types;
    std::vector<Cell> cells;
  };

  void open(const std::vector<int>& types) { now_.emplace(problem_, types, progress_); }
  DeviceGroups groups(int stages) const;
  void note_full_size();
  void search_leaders();
  void search_all();
  void search_cell(Cell& cell, std::int64_t most);
  bool descend(const MetisLattice& lattice, Cell& cell, int state, double layers, bool skip_first,
               std::int64_t& most);
  void examine(const std::vector<int>& sizes, int batch);
  void note_unsearched();

  const MetisProblem& problem_;
  const MetisSettings& settings_;
  MetisProgress& progress_;
  std::vector<Cells> all_;
  std::optional<MetisSequence> now_;  ///< The sequence in hand.
  MetisPath path_;
  std::vector<int> order_;     ///< Groups placed so far, while a lattice is searched,
  std::vector<int> sizes_;     ///< and the sizes of their stages.
  std::size_t resume_ = 0;     ///< Groups of order_ that repeat Cell::next.
  bool exploring_ = false;     ///< All degrees and divisions, no longer the algorithm's.
  std::int64_t followed_ = 0;  ///< Device groups and micro-batches that were looked at.
};

/// The path of given device groups from its start, in `path`.
void start_path(MetisPath& path, const std::vector<int>& sizes, int costed, int batch);

/// The search in the order of the public code. Returns why it would stop before its first plan;
/// empty if it would not.
std::string search_metis_as_published(const MetisProblem& problem, MetisProgress& progress);

}  // namespace orrery::planners
