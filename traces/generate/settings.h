/// Settings of the trace generator: YAML files (`schema: orrery/trace_generator/1`) of the library
/// or of the user.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/units.h"
#include "models/config/diagnostics.h"

namespace orrery::config {
class Visitor;
}

namespace orrery::traces {

inline constexpr double kMostFailureRate = 1e6;  ///< Of FailureSettings::rate.

/// What a failure takes down.
enum class FailureScope {
  gpu,   ///< One device.
  node,  ///< One node.
  leaf,  ///< Neighboring nodes of one leaf switch, at most FailureCause::nodes.
  job,   ///< The job's processes; no hardware is lost.
};
std::vector<std::pair<FailureScope, const char*>> enum_names(FailureScope);

enum class DurationShape { fixed, exponential, lognormal };
std::vector<std::pair<DurationShape, const char*>> enum_names(DurationShape);

/// A random duration. `sigma` is the standard deviation of the logarithm (lognormal only); the mean
/// is that of the duration itself.
struct RandomDuration {
  Seconds mean;
  DurationShape distribution = DurationShape::lognormal;
  double sigma = 1.0;
};

/// A row of a table of root causes.
struct FailureCause {
  std::string cause;
  std::string category;
  double count = 0;  ///< Over FailureSettings::period and gpus.
  FailureScope scope = FailureScope::gpu;
  int nodes = 2;                         ///< leaf: most nodes that go down together.
  std::optional<RandomDuration> repair;  ///< Not for scope job.
  std::optional<Seconds> detection;      ///< None: the policy's own default.
  std::string source;
};

/// Announced work on nodes: notice, leave, join.
struct Maintenance {
  double count = 0;  ///< As FailureCause::count.
  Seconds notice{3600};
  RandomDuration duration{{14400}, DurationShape::lognormal, 1.0};
  std::string source;
};

/// A share of nodes fails more often; the total stays, so that the rest fails less.
struct LemonNodes {
  double share = 0;
  double rate = 1;  ///< Failure rate of a lemon relative to any other node.
};

/// Devices that run slowly for a while.
struct SlowDevices {
  double per_1000_gpu_days = 0;
  double factor = 0.75;
  RandomDuration duration{{4320}, DurationShape::exponential, 1.0};
  std::optional<Seconds> detection;
  std::string source;
};

/// Links of the cluster that lose bandwidth for a while.
struct DegradedLinks {
  std::vector<std::string> links;  ///< Each with the rate below.
  double per_link_day = 0;
  double factor = 0.5;
  RandomDuration duration{{1440}, DurationShape::exponential, 1.0};
  std::string source;
};

/// Throughput of the whole job over the day: 1 - depth at the warmest hour, 1 twelve hours later, a
/// cosine between. Said as `slow` of scope job, every `step`.
struct DailyVariation {
  double depth = 0;
  double warmest_hour = 14;  ///< The trace starts at midnight.
  Seconds step{14400};
  std::string source;
};

struct FailureSettings {
  Seconds period{54 * 86400.0};  ///< Over which the counts were observed.
  std::int64_t gpus = 16384;     ///< On which they were observed.
  double rate = 1;               ///< Multiplies all rates.
  double shape = 1;              ///< Of Weibull gaps between failures of a cause; 1: Poisson.
  bool conditioned = false;
  std::vector<FailureCause> causes;
  LemonNodes lemons;
  Maintenance maintenance;
  SlowDevices slow;
  DegradedLinks links;
  DailyVariation daily;
};

/// Spot nodes of one GPU type. A node that is there leaves with the hazard `leaves_per_hour`, in
/// bursts of a geometric number of nodes with mean `burst` (or all that are there); bursts are so
/// frequent that each node keeps its hazard whatever their size. Nodes that are away come back
/// likewise, after `away` on average. Types do not depend on one another.
struct SpotType {
  std::string gpu_type;  ///< "*": each type that no other entry names.
  double leaves_per_hour = 0;
  std::vector<double> by_hour;  ///< 24 factors on the hazard from midnight on, or none.
  Seconds away;                 ///< Mean.
  double burst = 1;
  double join_burst = 1;
  Seconds notice;
  std::optional<double> start;  ///< Share of nodes there at time 0; none: the steady state.
  std::optional<DollarsPerSecond> price;  ///< Mean, per device; none: the trace names no prices.
  /// The logarithm of the price reverts to its mean: standard deviation in the long run (0:
  /// constant), time constant, and how often the price is set.
  double price_sigma = 0;
  Seconds price_reversion{86400};
  Seconds price_step{3600};
  std::string source;
};

struct TraceGenerator {
  std::string name;
  std::string source;
  std::optional<FailureSettings> failures;
  std::vector<SpotType> spot;
};

void describe(config::Visitor& v, RandomDuration& duration);
void describe(config::Visitor& v, FailureCause& cause);
void describe(config::Visitor& v, Maintenance& maintenance);
void describe(config::Visitor& v, LemonNodes& lemons);
void describe(config::Visitor& v, SlowDevices& slow);
void describe(config::Visitor& v, DegradedLinks& links);
void describe(config::Visitor& v, DailyVariation& daily);
void describe(config::Visitor& v, FailureSettings& failures);
void describe(config::Visitor& v, SpotType& spot);
void describe(config::Visitor& v, TraceGenerator& generator);

/// `name` is a generator of the library below `root` (traces/NAME.yaml) or a path to a YAML file.
/// `changes` are "key.path=value" and replace values of the file; they are reported at
/// `changes_at`.
TraceGenerator load_generator(const std::string& name, const std::string& root,
                              const std::vector<std::string>& changes, config::Position asked_at,
                              config::Position changes_at, config::Diagnostics& diagnostics);

}  // namespace orrery::traces
