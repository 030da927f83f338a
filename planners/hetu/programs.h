/// The discrete problems inside the Hetu v2 planner, as functions of numbers alone: how the rest of
/// a node splits into tensor-parallel groups, how layers and micro-batches are shared out, and how
/// groups are dealt to pipelines. The public code gives the two integer programs to a MILP solver;
/// both have one constraint that couples their variables, so that bisection solves them exactly.
/// [Hetu v2, 5.4 and A.2-A.3; public code, engine/strategy.py]
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace orrery::planners {

/// Splits `slowness.size()` GPUs, sorted by slowness (time of equal work, 1: the fastest type),
/// into runs of neighbors whose sizes are among `sizes` (ascending powers of two, 1 among them,
/// `full` the largest), so that the throughput, sum over runs of 1 / (alpha^log2(full / size) x
/// slowest member), is largest; of equals the split with fewest runs, of these the one whose first
/// runs are longest. Exact: a run of neighbors is as fast as any set that has the same slowest
/// member. [public code: hetero_tp_alpha, [1, 2, 4, 8] for alpha 2] O(GPUs x sizes).
std::vector<int> split_rest(std::span<const double> slowness, std::span<const int> sizes, int full,
                            double alpha);

/// What the layer program knows of a stage.
struct LayerStage {
  double layer_time = 1;  ///< y_j: seconds of one layer of one micro-batch, above 0.
  int most = 0;           ///< Layers that memory has room for.
};

/// Minimizes max_j y_j l_j over integers 1 <= l_j <= most_j that sum to `layers`; among the optima
/// the one with the smallest sum of y_j l_j (the time in which a pipeline fills), then the smallest
/// sum of l_j^2, then more layers on later stages. Nothing where memory does not hold the layers or
/// there are more stages than layers. Exact. O(S L log(S L)).
std::optional<std::vector<int>> assign_layers(int layers, std::span<const LayerStage> stages);

/// Minimizes max_i o_i m_i over integers m_i >= minimum_i that sum to `total`; o_i > 0. Nothing
/// where the minima exceed the total. Of equal choices the shorter period gets the micro-batch,
/// then the lower index. Exact: each micro-batch goes where it ends first. O(D log D) from the
/// continuous optimum.
std::optional<std::vector<int>> share_micro_batches(int total, std::span<const double> periods,
                                                    std::span<const int> minimum);

/// Ways to deal groups of several classes to pipelines.
struct DealQuery {
  std::vector<int> counts;    ///< Groups of each class.
  std::vector<double> power;  ///< Layers per second of a group of each class.
  int pipelines = 1;
  int fewest = 1;    ///< Groups per pipeline.
  int most = 1;      ///< Groups per pipeline.
  int layouts = 64;  ///< Ends after that many.
};

/// Groups of each class by pipeline, pipelines in descending lexicographic order.
using Deal = std::vector<std::vector<int>>;

struct Deals {
  std::vector<Deal> deals;  ///< All different, evenest first.
  bool complete = true;     ///< False: there are more.
};

/// All deals up to the order of the pipelines, by limited discrepancy: first the one in which each
/// pipeline gets what is nearest to its even share of what is left (of compute power, and of each
/// class), then those that take one second choice, and so on.
Deals deal_groups(const DealQuery& query);

}  // namespace orrery::planners
