#include "planners/hexiscale/layers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

/// Bounds are sums of the same numbers in another order: differences below this are rounding.
constexpr double kLayerRounding = 1e-12;

double stage_time(const StageRate& stage, int layers) {
  return stage.fixed.value + layers * stage.per_layer.value;
}

/// The smallest possible longest stage: one layer at a time to where it ends earliest.
double smallest_bound(std::span<const StageRate> stages, int layers) {
  std::vector<int> counts(stages.size(), 1);
  double bound = 0;
  for (const StageRate& stage : stages) bound = std::max(bound, stage_time(stage, 1));
  for (int left = layers - static_cast<int>(stages.size()); left > 0; --left) {
    std::size_t best = stages.size();
    double best_time = kNever;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (counts[s] >= stages[s].max_layers) continue;
      const double time = stage_time(stages[s], counts[s] + 1);
      if (time < best_time) {
        best = s;
        best_time = time;
      }
    }
    ++counts[best];
    bound = std::max(bound, best_time);
  }
  return bound;
}

/// Most layers of each stage within the bound.
std::vector<int> caps_within(std::span<const StageRate> stages, double bound) {
  std::vector<int> caps;
  for (const StageRate& stage : stages) {
    const double fit =
        (bound * (1 + kLayerRounding) - stage.fixed.value) / stage.per_layer.value + kLayerRounding;
    caps.push_back(fit >= stage.max_layers ? stage.max_layers
                                           : std::max(1, static_cast<int>(std::floor(fit))));
  }
  return caps;
}

/// One layer each, the rest to the fastest stages up to their caps.
std::vector<int> fill_fastest(std::span<const StageRate> stages, const std::vector<int>& caps,
                              const std::vector<std::size_t>& fastest_first, int layers) {
  std::vector<int> counts(stages.size(), 1);
  int left = layers - static_cast<int>(stages.size());
  for (const std::size_t s : fastest_first) {
    const int more = std::min(left, caps[s] - 1);
    counts[s] += more;
    left -= more;
  }
  return counts;
}

/// The smallest bound above `bound` that lets a stage take one more layer.
double next_bound(std::span<const StageRate> stages, const std::vector<int>& caps) {
  double next = kNever;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (caps[s] < stages[s].max_layers) next = std::min(next, stage_time(stages[s], caps[s] + 1));
  }
  return next;
}

}  // namespace

Seconds rate_time(std::span<const StageRate> stages, std::span<const int> layers,
                  int micro_batches) {
  double sum = 0;
  double longest = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const double time = stage_time(stages[s], layers[s]);
    sum += time;
    longest = std::max(longest, time);
  }
  return Seconds{sum + (micro_batches - 1) * longest};
}

std::optional<std::vector<int>> assign_layers_by_compute(std::span<const StageRate> stages,
                                                         int layers, int micro_batches) {
  std::int64_t room = 0;
  for (const StageRate& stage : stages) {
    if (stage.max_layers < 1) return std::nullopt;
    room += stage.max_layers;
  }
  if (static_cast<int>(stages.size()) > layers || room < layers) return std::nullopt;
  std::vector<std::size_t> fastest(stages.size());
  std::iota(fastest.begin(), fastest.end(), 0);
  std::stable_sort(fastest.begin(), fastest.end(), [&](std::size_t a, std::size_t b) {
    return stages[a].per_layer < stages[b].per_layer;
  });
  std::vector<int> limits;
  for (const StageRate& stage : stages) limits.push_back(stage.max_layers);
  const double lowest_sum =
      rate_time(stages, fill_fastest(stages, limits, fastest, layers), 1).value;

  std::vector<int> best;
  double best_time = kNever;
  double bound = smallest_bound(stages, layers);
  while (bound < kNever && lowest_sum + (micro_batches - 1) * bound < best_time) {
    const std::vector<int> caps = caps_within(stages, bound);
    std::vector<int> counts = fill_fastest(stages, caps, fastest, layers);
    const double time = rate_time(stages, counts, micro_batches).value;
    if (time < best_time) {
      best_time = time;
      best = std::move(counts);
    }
    bound = next_bound(stages, caps);
  }
  return best;
}

std::optional<std::vector<int>> balance_micro_batches(std::span<const PipelineRate> pipelines,
                                                      int total) {
  if (total < static_cast<int>(pipelines.size())) return std::nullopt;
  const auto counts_within = [&](double bound) {
    std::vector<int> counts;
    for (const PipelineRate& rate : pipelines) {
      const double more = std::floor((bound - rate.fill.value) / rate.period.value);
      counts.push_back(1 + static_cast<int>(std::clamp(more, 0.0, static_cast<double>(total))));
    }
    return counts;
  };
  const auto sum = [](const std::vector<int>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  // What the greedy rule gives out before this bound, found by bisection; then one by one.
  double low = 0;
  double high = 0;
  for (const PipelineRate& rate : pipelines) {
    high = std::max(high, (rate.fill + total * rate.period).value);
  }
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (sum(counts_within(middle)) <= total ? low : high) = middle;
  }
  std::vector<int> counts = counts_within(low);
  for (std::int64_t left = total - sum(counts); left > 0; --left) {
    const auto after = [&](std::size_t p) {
      return pipelines[p].fill + counts[p] * pipelines[p].period;
    };
    std::size_t best = 0;
    for (std::size_t p = 1; p < pipelines.size(); ++p) {
      if (after(p) < after(best)) best = p;
    }
    ++counts[best];
  }
  return counts;
}

}  // namespace orrery::planners
