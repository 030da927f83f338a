/// The search of Metis (ATC 2024, Algorithm 1): sequences of GPU types x device groups x numbers of
/// micro-batches, and for each a single path of intra-stage plans that starts from pure data
/// parallelism and raises the tensor-parallel degree where memory is tightest. Plans that cannot
/// beat the best ones are left out by lower bounds, which does not change the result: branch and
/// bound over the permutations of device groups, and along each path.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "planners/kit/ranking.h"
#include "planners/metis/balance.h"
#include "planners/metis/groups.h"
#include "planners/metis/settings.h"
#include "planners/metis/stages.h"
#include "planners/metis/tables.h"
#include "planners/planner.h"

namespace orrery::planners {

class MetisSearch {
 public:
  /// Keeps references. Plans that fit in memory go to `ranking`, of which `wanted` are kept;
  /// counts go to `report`. The search ends when report.work reaches `budget` (0: no end), and
  /// already at `patience` (0: none) if nothing was found by then.
  MetisSearch(const PlannerInput& input, const MetisSettings& settings, const MetisTables& tables,
              ir::ScheduleKind schedule, ir::Recompute recompute, std::size_t wanted,
              std::int64_t budget, std::int64_t patience, Ranking& ranking, SearchReport& report);

  /// Adds notes about what was not searched.
  void run();
  /// Why the public code would stop before its first plan; empty if it would not.
  const std::string& halted() const { return halted_; }

 private:
  /// Device groups of one number of stages in one sequence of types.
  struct Cell {
    int stages = 1;
    std::int64_t leaders = 0;    ///< First permutations that were examined ahead.
    std::int64_t partition = 0;  ///< Where to go on: sizes,
    int batch = 0;               ///< number of micro-batches (position in batches_),
    std::vector<int> next;       ///< and permutation, as positions in Lattice::groups.
    bool finished = false;
  };
  /// The permutations of some groups as a lattice: a state says how many of each group are placed.
  struct Lattice {
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
  struct Sequence {
    std::vector<int> types;
    std::vector<Cell> cells;
  };
  /// A path through intra-stage plans.
  struct Path {
    const std::vector<int>* sizes = nullptr;
    std::vector<int> first;  ///< Rank at which each stage starts.
    std::vector<int> step;   ///< Exponent of the tensor-parallel degree of each stage.
    int batch = 0;
    int costed = 0;  ///< Stages that the estimate counts.
  };
  enum class Next { moved, end };

  std::vector<Sequence> sequences() const;
  void open(const std::vector<int>& types);
  bool stop();
  void search_leaders(std::vector<Sequence>& all);
  void search_all(std::vector<Sequence>& all);
  void search_cell(Cell& cell, std::int64_t most);
  void search_as_published(const std::vector<Sequence>& all);
  bool publish_groups(int stages, int costed);

  void examine(const std::vector<int>& sizes, int costed);
  void examine(const std::vector<int>& sizes, int costed, int batch);
  void follow(Path& path);
  bool hopeless(const Path& path);
  bool has_room(const Path& path, double slack);
  double least_sum();
  std::pair<double, double> room(int first, int size, int batch, int step, int in_flight,
                                 double slack);
  int in_flight(int stages, int stage, int batch) const;
  static Lattice make_lattice(const DeviceGroups& groups);
  bool spend(std::int64_t& most, std::int64_t units);
  void charge(std::int64_t units);
  bool possible(const Lattice& lattice, int batch) const;
  double slack(const Lattice& lattice, int batch);
  bool weigh(Lattice& lattice, int batch);
  bool descend(const Lattice& lattice, Cell& cell, int state, double layers, bool skip_first,
               std::int64_t& most);
  bool divide_layers(const Path& path, std::vector<double>& memory, std::vector<int>& cuts,
                     int& attempts);
  void count_memory(const Path& path, const std::vector<int>& cuts, std::vector<double>& have,
                    std::vector<double>& need);
  Next advance(Path& path, const std::vector<double>& memory) const;
  double speed(const MetisStageChoice& choice) const;
  double cost(const Path& path, const std::vector<int>& cuts);
  double hop(const Path& path, int stage, int end);
  void offer(const Path& path, const std::vector<int>& cuts);
  bool expressible(const Path& path, const std::vector<int>& cuts);
  ir::Plan build(const Path& path, const std::vector<int>& cuts);
  const MetisStageChoice& choice(const Path& path, int stage);
  void note_unsearched(const std::vector<Sequence>& all);

  // metis_full.cpp
  class Divisions;
  void start_exploring(std::vector<Sequence>& all);
  void explore(Path& path, int stage);
  double fixed_cost(const Path& path);
  const std::vector<double>& stage_times(const Path& path, int stage);
  const std::vector<int>& stage_reach(const Path& path, int stage);
  void count_full(const std::vector<Sequence>& all);
  template <class Visit>
  void count_orders(const Lattice& lattice, int batch, const Visit& visit);

  const PlannerInput& input_;
  const MetisSettings& settings_;
  const MetisTables& tables_;
  ir::ScheduleKind schedule_;
  ir::Recompute recompute_;
  std::size_t wanted_;
  std::int64_t budget_;
  std::int64_t patience_;
  Ranking& ranking_;
  SearchReport& report_;
  std::vector<std::int64_t> batches_;
  double inner_share_ = 0;  ///< Of the demand, without embedding and head.
  LayerBalancer balancer_;
  Path path_;
  std::vector<std::pair<double, double>> rooms_;  ///< (time of a layer, layers) of each stage.
  std::vector<int> order_;      ///< Groups placed so far, while a lattice is searched,
  std::vector<int> sizes_;      ///< and the sizes of their stages.
  std::size_t resume_ = 0;      ///< Groups of order_ that repeat Cell::next.
  std::multiset<double> best_;  ///< Estimates of the best plans, milliseconds.
  std::unique_ptr<MetisPlacement> placement_;
  std::unique_ptr<MetisStages> stages_;
  std::int64_t broken_ = 0;         ///< Intra-stage plans at which the public code stops.
  std::int64_t inexpressible_ = 0;  ///< Its plans that lose layers or samples.
  std::string halted_;              ///< Why the public code stops as a whole.

  bool exploring_ = false;            ///< All degrees and divisions, no longer the algorithm's.
  std::int64_t followed_ = 0;         ///< Device groups and micro-batches that were looked at.
  bool full_ended_ = false;           ///< The budget ended among the divisions of a combination.
  std::vector<double> bytes_before_;  ///< Parameters before each layer, undivided.
  std::map<const MetisStageChoice*, std::vector<double>> full_times_;
  std::map<std::pair<const MetisStageChoice*, int>, std::vector<int>> full_reach_;
};

}  // namespace orrery::planners
