/// Local improvement of a k-way partition under capacities: Kernighan-Lin on pairs of parts, with
/// single moves as well as swaps, and repair of parts that are too heavy.
/// [Kernighan, Lin 1970; moves as in Fiduccia, Mattheyses 1982]
#pragma once
#include <vector>

#include "models/base/rng.h"
#include "planners/kit/graph.h"

namespace orrery::planners {

/// What a part may hold.
struct PartLimit {
  double capacity = 0;   ///< Largest total vertex weight.
  int min_vertices = 1;  ///< Never fewer vertices than this.
};

/// Minimizes the cut; to maximize, pass a graph with negated edges. States are ordered by (excess,
/// cut), and no step makes that order worse, so a partition within its capacities stays there.
class Refiner {
 public:
  /// `assignment`: a part in [0, limits.size()) for every vertex, with at least min_vertices each.
  /// Keeps a reference to `graph`. O(vertices^2).
  Refiner(const WeightedGraph& graph, std::vector<PartLimit> limits, std::vector<int> assignment);

  /// Moves and swaps vertices out of parts above capacity while that lowers the excess, at the
  /// least loss of cut per excess removed.
  void rebalance();

  /// Up to `passes` sweeps over the pairs of parts, in random order, until none improves.
  void refine(int passes, Rng& rng);

  const std::vector<int>& assignment() const { return assignment_; }
  /// Sum over parts of the square of (weight - capacity) where positive; 0 within the capacities.
  double excess() const;
  /// Sum of edges between different parts, as in cut() of partition.h.
  double cut() const;

 private:
  struct Pair;  // Working state of one Kernighan-Lin pass over two parts.

  double part_excess(int part, double weight) const;
  double pair_excess(int a, double weight_a, int b, double weight_b) const;
  double edges_to(int vertex, int part) const;
  void move(int vertex, int to);
  bool improve_pair(int a, int b, bool overshoot);
  bool rebalance_once(int part);

  const WeightedGraph& graph_;
  std::vector<PartLimit> limits_;
  std::vector<int> assignment_;
  std::vector<std::vector<int>> members_;  // [part], in no order, but the same one on each run.
  std::vector<double> weight_;             // [part]
  std::vector<double> edges_;              // [parts x vertices]: edges of a vertex into a part.
  std::vector<double> lowest_edge_;        // [vertices]
  double tolerance_ = 0;                   // Excess below this is rounding.
};

}  // namespace orrery::planners
