/// AMP's cost of a pipeline and its layer partition, on plain numbers: a chain of items (layers)
/// with times, cuts between them, a number of micro-batches.
///   cost = (B - 1) max stage + sum of stages + sum of cuts   [Li et al., NeurIPS 2022, section 4]
#pragma once
#include <optional>
#include <vector>

#include "planners/kit/partition_dp.h"

namespace orrery::planners {

/// What AMP splits.
struct AmpChain {
  std::vector<double> time;  ///< [items] Seconds of a micro-batch, forward and backward.
  /// [stages - 1][items - 1] Seconds that cut number j costs after item i.
  std::vector<std::vector<double>> cut;
  int micro_batches = 1;

  int items() const { return static_cast<int>(time.size()); }
  int stages() const { return static_cast<int>(cut.size()) + 1; }
};

/// Seconds of the pipeline under the split: stage s holds the items boundaries[s] ...
/// boundaries[s + 1] - 1.
double amp_pipeline_cost(const AmpChain& chain, const std::vector<int>& boundaries);

/// The split of least cost. Among equal ones that with the shortest longest stage, then that with
/// the least sum of squared stage times (the even one), then that whose last stage, last but one,
/// ... begins latest. Nothing when stages > items.
/// Walks up the possible longest stages and minimizes the cuts below each, until no longer stage
/// can win: the same optimum as AMP's program over (item, stages, longest so far).
/// O(P stages items^2) for P longest stages tried, one where all cuts cost the same.
std::optional<ChainSplit> amp_split(const AmpChain& chain);

/// Prefix sums of the times, from 0 on.
std::vector<double> amp_prefix_sums(const std::vector<double>& time);
/// Sums of all ranges, given prefix sums: ascending, those within `tolerance` once.
std::vector<double> amp_range_sums(const std::vector<double>& prefix, double tolerance);

/// Seconds of an all-reduce of `bytes` over a ring whose link i, from member i to member i + 1 (the
/// last one back to the first), has bandwidth[i] in bytes/s: 2 (d - 1) / d x bytes / slowest link.
/// `last_link_only`: the public code keeps the bandwidth of the link from last to first alone.
/// Zero for fewer than two members.
double amp_ring(const std::vector<double>& bandwidth, double bytes, bool last_link_only);

}  // namespace orrery::planners
