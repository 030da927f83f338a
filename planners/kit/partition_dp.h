/// Exact dynamic programs that split a chain of blocks over an ordered list of pipeline stages, and
/// the proportional rounding that heuristics use in their place.
#pragma once
#include <functional>
#include <optional>
#include <vector>

namespace orrery::planners {

/// Cost of giving the blocks `first` ... `last` (both included, first <= last) to `stage`. Any
/// number >= 0, monotone in the range or not; +infinity says that they do not fit.
/// It is asked at most once for each (stage, first, last).
using StageCost = std::function<double(int stage, int first, int last)>;

/// Stage s holds the blocks boundaries[s] ... boundaries[s + 1] - 1, at least one.
struct ChainSplit {
  std::vector<int> boundaries;  ///< [stages + 1], from 0 to the number of blocks, ascending.
  double cost = 0;              ///< The minimized objective.
};

/// Minimizes the largest stage cost. Nothing when no split has finite cost (or stages > blocks).
/// Time O(stages * blocks^2) including as many questions for costs; memory O(stages * blocks).
std::optional<ChainSplit> split_min_max(int blocks, int stages, const StageCost& cost);

/// Minimizes the time of a synchronous pipeline, sum of stage costs + (micro_batches - 1) * largest
/// stage cost [AMP, NeurIPS 2022, section 4; Metis, ATC 2024; AutoHet, section 3]. Walks down the
/// Pareto front of (largest, sum): the cheapest sum under a limit on the largest cost, then the
/// same strictly below the largest cost found, until no split is left or none below can win. Exact.
/// Time O(P * stages * blocks^2) for P points of the front, P <= number of distinct costs; each
/// cost is asked once; memory O(stages * blocks^2).
std::optional<ChainSplit> split_pipeline_time(int blocks, int stages, int micro_batches,
                                              const StageCost& cost);

/// Integers that sum to `total`, each >= `minimum`, proportional to `weights` (>= 0) with largest
/// remainders; ties go to the lower index. Entries whose share is below `minimum` are fixed there
/// and the rest is shared again. Equal shares when all weights left are 0. Nothing when
/// minimum * weights.size() > total, or when there are no weights. O(n^2).
std::optional<std::vector<int>> balance_layers(int total, const std::vector<double>& weights,
                                               int minimum = 1);

}  // namespace orrery::planners
