#include "planners/kit/partition_dp.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

/// best[s][j]: objective of the first j blocks on the first s stages; from[s][j]: where stage s - 1
/// starts in that optimum.
struct Table {
  Table(int blocks, int stages)
      : width(blocks + 1), best(width * (stages + 1), kNever), from(best.size(), -1) {
    best[0] = 0;
  }
  std::size_t at(int stage, int block) const { return as_size(stage) * width + block; }
  std::size_t width;
  std::vector<double> best;
  std::vector<int> from;
};

/// Fills the table; `combine(objective of the stages before, cost of this stage)`, monotone in the
/// first, gives the objective including this stage.
template <class Cost, class Combine>
std::optional<ChainSplit> solve(int blocks, int stages, const Cost& cost, const Combine& combine) {
  Table table(blocks, stages);
  for (int s = 0; s < stages; ++s) {
    for (int last = s; last < blocks - (stages - 1 - s); ++last) {
      double& best = table.best[table.at(s + 1, last + 1)];
      for (int first = (s == 0 ? 0 : s); first <= (s == 0 ? 0 : last); ++first) {
        const double before = table.best[table.at(s, first)];
        if (before == kNever) continue;
        const double value = combine(before, cost(s, first, last));
        if (value < best) {
          best = value;
          table.from[table.at(s + 1, last + 1)] = first;
        }
      }
    }
  }
  ChainSplit split;
  split.cost = table.best[table.at(stages, blocks)];
  if (split.cost == kNever) return std::nullopt;
  split.boundaries.resize(stages + 1);
  split.boundaries.back() = blocks;
  for (int s = stages; s > 0; --s) {
    split.boundaries[s - 1] = table.from[table.at(s, split.boundaries[s])];
  }
  return split;
}

/// All costs, asked once. Ranges that no split can use stay infinite.
class CostTable {
 public:
  CostTable(int blocks, int stages, const StageCost& cost)
      : blocks_(blocks), values_(blocks_ * blocks_ * as_size(stages), kNever) {
    for (int s = 0; s < stages; ++s) {
      for (int first = s; first <= (s == 0 ? 0 : blocks - (stages - s)); ++first) {
        for (int last = first; last < blocks - (stages - 1 - s); ++last) {
          if (s == stages - 1 && last != blocks - 1) continue;
          const double value = cost(s, first, last);
          ORRERY_CHECK(value >= 0, "cost({}, {}, {}) is {}", s, first, last, value);
          values_[at(s, first, last)] = value;
        }
      }
    }
  }
  double operator()(int stage, int first, int last) const {
    return values_[at(stage, first, last)];
  }

 private:
  std::size_t at(int stage, int first, int last) const {
    return (as_size(stage) * blocks_ + first) * blocks_ + last;
  }
  std::size_t blocks_;
  std::vector<double> values_;
};

double largest_stage(const ChainSplit& split, const CostTable& cost) {
  double largest = 0;
  for (std::size_t s = 0; s + 1 < split.boundaries.size(); ++s) {
    largest = std::max(largest,
                       cost(static_cast<int>(s), split.boundaries[s], split.boundaries[s + 1] - 1));
  }
  return largest;
}

}  // namespace

std::optional<ChainSplit> split_min_max(int blocks, int stages, const StageCost& cost) {
  ORRERY_CHECK(blocks >= 0 && stages >= 1, "{} blocks on {} stages", blocks, stages);
  if (stages > blocks) return std::nullopt;
  const auto checked = [&](int stage, int first, int last) {
    const double value = cost(stage, first, last);
    ORRERY_CHECK(value >= 0, "cost({}, {}, {}) is {}", stage, first, last, value);
    return value;
  };
  return solve(blocks, stages, checked, [](double a, double b) { return std::max(a, b); });
}

std::optional<ChainSplit> split_pipeline_time(int blocks, int stages, int micro_batches,
                                              const StageCost& cost) {
  ORRERY_CHECK(blocks >= 0 && stages >= 1 && micro_batches >= 1,
               "{} blocks on {} stages with {} micro-batches", blocks, stages, micro_batches);
  if (stages > blocks) return std::nullopt;
  const CostTable table(blocks, stages, cost);
  const auto bottleneck =
      solve(blocks, stages, table, [](double a, double b) { return std::max(a, b); });
  if (!bottleneck) return std::nullopt;
  const double repeats = micro_batches - 1;
  std::optional<ChainSplit> best;
  double limit = kNever;  // Stage costs must stay strictly below.
  while (true) {
    auto split = solve(blocks, stages, table, [limit](double sum, double stage) {
      return stage < limit ? sum + stage : kNever;
    });
    if (!split) break;
    const double sum = split->cost;
    limit = largest_stage(*split, table);
    split->cost = sum + repeats * limit;
    if (!best || split->cost < best->cost) best = split;
    // Lower limits can only raise the sum, and no split has a largest cost below the bottleneck.
    if (limit <= bottleneck->cost || sum + repeats * bottleneck->cost >= best->cost) break;
  }
  return best;
}

std::optional<std::vector<int>> balance_layers(int total, const std::vector<double>& weights,
                                               int minimum) {
  ORRERY_CHECK(minimum >= 0, "minimum is {}", minimum);
  const std::size_t n = weights.size();
  if (n == 0 || static_cast<std::int64_t>(minimum) * static_cast<std::int64_t>(n) > total) {
    return std::nullopt;
  }
  for (const double w : weights) ORRERY_CHECK(std::isfinite(w) && w >= 0, "a weight is {}", w);
  std::vector<bool> fixed(n, false);
  std::vector<double> share(n);
  int left = total;
  bool changed = true;
  while (changed) {
    changed = false;
    double sum = 0;
    int open = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (fixed[i]) continue;
      sum += weights[i];
      ++open;
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (!fixed[i])
        share[i] = sum > 0 ? left * (weights[i] / sum) : static_cast<double>(left) / open;
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (fixed[i] || share[i] >= minimum) continue;
      fixed[i] = changed = true;
      share[i] = minimum;
      left -= minimum;
    }
  }
  std::vector<int> result(n);
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  int given = 0;
  for (std::size_t i = 0; i < n; ++i) {
    // A share that is an integer up to rounding counts as that integer.
    const double nearest = std::round(share[i]);
    if (std::abs(share[i] - nearest) <= 1e-9 * std::max(1.0, nearest)) share[i] = nearest;
    result[i] = std::max(fixed[i] ? minimum : 0, static_cast<int>(std::floor(share[i])));
    given += result[i];
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return share[a] - result[a] > share[b] - result[b];
  });
  for (std::size_t i = 0; given < total; i = (i + 1) % n) {
    if (fixed[order[i]] && n > 1 && std::count(fixed.begin(), fixed.end(), false) > 0) continue;
    ++result[order[i]];
    ++given;
  }
  ORRERY_CHECK(given == total, "gave {} of {}", given, total);
  return result;
}

}  // namespace orrery::planners
