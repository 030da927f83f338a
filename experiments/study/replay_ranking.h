/// Policies of a replay study in order, from runs.csv: means over seeds with confidence intervals.
/// All policies of a case see the same traces, so that differences are taken seed by seed.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "experiments/study/files.h"
#include "models/config/visitor.h"
#include "sim/replay/replay.h"

namespace orrery::experiments {

/// Mean of a sample and half the width of its confidence interval by Student's t (Boost.Math);
/// `tail` lies beyond it on each side. Of fewer than two values `half` is not finite.
struct Interval {
  double mean = 0;
  double half = 0;
  double low = 0;  ///< Of the interval; of interval_of() inside of what is possible.
  double high = 0;
};
Interval confidence(const std::vector<double>& values, double tail = 0.025);

/// What is said of a sample: from five values on the 95 % confidence interval, bounded by what is
/// possible; of fewer, whose t interval is mostly wider than anything that can happen, the least
/// and the most, and no `half`.
Interval interval_of(const std::vector<double>& values,
                     double least = -std::numeric_limits<double>::infinity(),
                     double most = std::numeric_limits<double>::infinity());

/// How much more `value` is than `other`, as a share of `other`; where that has nothing, of the
/// larger of both: 1, or 0 if neither has anything.
double share_above(double value, double other);

/// What throughput is lost to. With R the tokens per second of the fastest undisturbed plan of the
/// case, 1 - tokens / (R x horizon) is the sum of all; it is 1 where nothing ever trained.
enum class Loss {
  detection,
  restart,  ///< Planning, processes, communicators.
  state,    ///< Moving the state.
  lost_work,
  saves,   ///< Training stopped for checkpoints.
  copies,  ///< Iterations slowed by copies beside training.
  spares,  ///< Iterations on fewer, slower or rerouted devices; waiting for devices.
  plan,    ///< The own undisturbed plan is slower than the fastest.
};
inline constexpr std::size_t kLosses = 8;
const char* name_of(Loss loss);

/// A policy at a point of its axes in one case.
struct Standing {
  std::string in_case;
  std::string policy;
  std::string axes;       ///< "interval=600 restart=60"; "" without axes.
  std::size_t seeds = 0;  ///< That came to a result.
  std::string own_plan;   ///< Why it did not begin with the common plan; "": it did, or none was.
  /// On how many traces it never began to train, with the first reason; "": on none.
  std::string untrained;
  Interval tokens_per_second;
  /// Of the fastest undisturbed plan of each of its replays that trained; mean.
  double undisturbed_tokens_per_second = 0;
  Interval goodput;  ///< Of the policy's own reference iteration [sim/replay/replay.h].
  Interval ettr;
  /// Tokens per second below those of the first of the case, share of the first, seed by seed
  /// (share_above()).
  Interval behind;
  /// The same against the one before it in the ranking.
  Interval behind_previous;
  double tokens = 0;               ///< Mean.
  double dollars_per_million = 0;  ///< Of all seeds together; not finite without prices or tokens.
  double interruptions = 0;
  double lost_iterations = 0;
  std::array<double, sim::kBuckets> wall{};       ///< Shares of the horizon.
  std::array<double, sim::kBuckets> gpu_hours{};  ///< Mean.
  std::array<Interval, kLosses> losses{};         ///< Shares of R x horizon.
  /// The same less those of the first of the case, seed by seed: what its place owes to.
  std::array<Interval, kLosses> owed{};
  double spare_gpu_hours = 0;
  double absent_gpu_hours = 0;
};

/// A policy that cannot run in a case, with the first seed's reason.
struct Unable {
  std::string in_case;
  std::string policy;
  std::string axes;
  std::string status;  ///< infeasible or failed.
  std::string reason;
};

struct PolicyRanking {
  std::vector<Standing> standings;  ///< By case as in the file, then by tokens per second.
  std::vector<Unable> unable;
  std::size_t rows = 0;
  std::int64_t searches = 0;  ///< Of planners, over all rows, as those below.
  std::int64_t iterations_simulated = 0;
  std::int64_t iterations_asked = 0;
};

/// For JSON: values that are not finite are left out.
void describe(config::Visitor& v, Interval& interval);
void describe(config::Visitor& v, Standing& standing);
void describe(config::Visitor& v, Unable& unable);

/// `axes`: columns that tell points of a policy apart.
PolicyRanking rank_policies(const std::vector<CsvRow>& rows, const std::vector<std::string>& axes);

}  // namespace orrery::experiments
