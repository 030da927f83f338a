/// How many layers each stage of a pipeline gets when all layers cost the same, and how many
/// micro-batches each pipeline gets.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "models/base/units.h"

namespace orrery::planners {

/// A stage as the layer assignment sees it.
struct StageRate {
  Seconds per_layer;   ///< Of one micro-batch, forward and backward; positive.
  Seconds fixed;       ///< Hop to the next stage.
  int max_layers = 0;  ///< That fit in memory.
};

/// sum(fixed + layers x per_layer) + (micro_batches - 1) x the largest of them. [HexiScale, Eq. 9]
Seconds rate_time(std::span<const StageRate> stages, std::span<const int> layers,
                  int micro_batches);

/// Layers per stage, at least one and at most max_layers each, that minimize rate_time. Exact: for
/// a bound on the longest stage the cheapest assignment fills the fastest stages first; bounds are
/// tried upwards from the smallest possible one while they can still win. Nothing when `layers`
/// layers do not fit. O(bounds x stages log stages), one bound in most cases.
std::optional<std::vector<int>> assign_layers_by_compute(std::span<const StageRate> stages,
                                                         int layers, int micro_batches);

/// A pipeline as the batch assignment sees it: fill + (micro_batches - 1) x period.
struct PipelineRate {
  Seconds fill;
  Seconds period;
};

/// Micro-batches per pipeline, at least one each, that sum to `total` and minimize the longest
/// pipeline. Greedy and exact, as times grow with micro-batches. Ties go to the lower index.
/// Nothing when total is below the number of pipelines.
std::optional<std::vector<int>> balance_micro_batches(std::span<const PipelineRate> pipelines,
                                                      int total);

}  // namespace orrery::planners
