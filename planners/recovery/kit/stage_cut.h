/// Cutting a chain of layers into a given number of stages, and sharing micro-batches out among
/// pipelines of different speed: both exact. For policies that keep pipelines of many depths ready.
#pragma once
#include <functional>
#include <optional>
#include <vector>

namespace orrery::planners {

/// What a cut into stages with times t[0] .. t[S - 1] for a micro-batch is judged by.
enum class CutCriterion {
  /// sum t + (m - 1) max t. [models/schedule/closed_form.h, pipeline_time]
  pipeline_time,
  /// T1 + T2 + T3 with 4 S micro-batches and the slowest stage k, of equal ones the last:
  /// sum t + (2 S + k + 1) t[k] + sum of t[k] .. t[S - 1]. [Oobleck, SOSP 2023, section 4.1.2;
  /// public code, oobleck/csrc/planning/execution_result.h]
  oobleck,
};

struct StageCut {
  std::vector<int> layers;  ///< By stage, at least one each.
  double value = 0;
};

/// Seconds of `layers` layers from the layer `first` on as stage `stage`, >= 0; none: impossible.
using StageSeconds = std::function<std::optional<double>(int stage, int first, int layers)>;

/// The cut of all layers into `stages` stages with the least value; none: there is none.
/// Exact: for each bound on the slowest stage, least sums of prefixes and suffixes; bounds rise
/// from the least feasible one until they alone cost more than the best cut. O(stages layers^2) a
/// bound; asks for each (stage, first, layers) once. Of equal cuts one with the smaller bound.
std::optional<StageCut> best_cut(int layers, int stages, int micro_batches, CutCriterion criterion,
                                 const StageSeconds& seconds);

/// A pipeline takes `first` seconds for one micro-batch and `next` >= 0 for each one more.
struct PipelineRate {
  double first = 0;
  double next = 0;
  double time(int micro_batches) const { return first + next * (micro_batches - 1); }
};

/// Micro-batches by pipeline, at least one each, that add up to `total`, such that the slowest
/// pipeline is as fast as possible: one after the other to the pipeline that is then earliest.
/// Exact because times only grow; ties go to the first pipeline. Empty: fewer than pipelines.
/// [Oobleck, section 4.2.2, solves the same integer program]
std::vector<int> split_batch(const std::vector<PipelineRate>& pipelines, int total);

}  // namespace orrery::planners
