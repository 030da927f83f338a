/// Effective training time of long runs against closed forms at points that papers publish, and
/// Llama 3's number of interruptions over seeds of the trace generator.
///
/// A job loses its processes at random times, exponentially distributed with mean M. Closed forms:
/// - exact, with checkpoints of cost w after each D of training and restarts of R, which can fail
///   too: D / (M exp(R / M) (exp((D + w) / M) - 1)). [Daly, FGCS 2006, eq. 20]
/// - additive, its first order: (1 - (R + D / 2) / M) / (1 + w / D). [Kokolis et al. 2025, arXiv
///   2410.21680] It is what the papers' points were computed by.
/// - recoveries that lose no work and wait for one another like customers in a queue: 1 - R / M.
///   If a failure during a recovery makes it start over: exp(-R / M).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/base/units.h"

namespace orrery::experiments {

enum class EttrRecovery {
  checkpoint,    ///< Back to the last checkpoint; a failure during a restart starts it over.
  queued,        ///< Nothing is lost; recoveries follow one another.
  from_scratch,  ///< Nothing is lost; a failure during a recovery starts it over.
};

struct EttrPoint {
  std::string name;
  int gpus = 0;  ///< Eight to a node.
  double failures_per_1000_node_days = 0;
  Seconds restart;
  Seconds interval;  ///< Training time between checkpoints.
  Seconds stall;     ///< Time that a checkpoint takes.
  EttrRecovery recovery = EttrRecovery::checkpoint;
  std::optional<double> published;
  std::string published_is;  ///< "about", "at least", or "measured".
  std::string source;
};

/// The published points, as far as their inputs are known.
std::vector<EttrPoint> ettr_points();

/// Mean time between failures of the job.
Seconds mean_between_failures(const EttrPoint& point);
double exact_ettr(const EttrPoint& point);
double additive_ettr(const EttrPoint& point);
/// By sim/replay, over a trace of `failures` mean times. Points that are to be independent need
/// different seeds: the gaps of a seed are the same up to their mean.
double replayed_ettr(const EttrPoint& point, std::uint64_t seed, int failures);

/// Unexpected interruptions in 54 days of the library's generator `llama3` on 2,048 nodes of 8
/// GPUs. Published: 419 on 16,384 GPUs. [arXiv 2407.21783, Table 5]
std::int64_t llama3_interruptions(std::uint64_t seed);

struct MeanEstimate {
  double mean = 0;
  double half_width = 0;  ///< Half of the 99 % confidence interval, Student's t.
};
/// At least two values.
MeanEstimate estimate(const std::vector<double>& values);

}  // namespace orrery::experiments
