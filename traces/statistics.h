/// What a trace says about its cluster: counts, times between failures, availability.
///
/// Definitions:
/// - unexpected interruptions: failures, and instants at which something leaves without notice;
///   announced ones: instants at which something leaves and all of it was given notice.
/// - MTBF: horizon / unexpected interruptions. MTTF of 1,024 GPUs: GPU-time that was there / 1,024
/// /
///   unexpected interruptions (as if they came in proportion to GPUs). Rate per 1000 node-days:
///   interruptions / time that nodes were there (any of their devices).
/// - lifetime of a node: time that nodes were there / times that a node went altogether; times that
///   the start and the end of the trace cut are counted above the line, as for exponential lives.
///   away: the same of the time that nodes were not there, over the times that one came back.
/// - burst: nodes that go (come) altogether at one instant.
/// - availability: share of time, so that a quantile q of x devices says that x or fewer were there
///   for the share q of the time.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/base/time.h"
#include "models/config/diagnostics.h"
#include "traces/trace.h"

namespace orrery::config {
class Visitor;
}

namespace orrery::traces {

struct CauseCount {
  std::string kind;
  std::string cause;
  std::int64_t events = 0;
};

struct Quantile {
  double probability = 0;
  double nodes = 0;    ///< Share of them.
  double devices = 0;  ///< Share of them.
};

/// Availability of the nodes of one GPU type, or of all.
struct Availability {
  std::string gpu_type;  ///< "": not said by the trace.
  std::int64_t nodes = 0;
  std::int64_t devices = 0;
  double mean_nodes = 0;    ///< Share.
  double mean_devices = 0;  ///< Share.
  std::vector<Quantile> quantiles;
  double node_hours = 0;  ///< There.
  double gpu_hours = 0;
  std::int64_t departures = 0;  ///< Of nodes, over the whole trace.
  std::int64_t arrivals = 0;
  std::int64_t bursts = 0;
  std::int64_t join_bursts = 0;
  /// Zero where there were none.
  double mean_burst = 0;
  double max_burst = 0;
  double mean_join_burst = 0;
  double lifetime_hours = 0;
  double away_hours = 0;
  double leaves_per_node_hour = 0;
};

struct TraceStatistics {
  std::string source;
  std::uint64_t seed = 0;
  double horizon_hours = 0;
  std::int64_t events = 0;
  std::vector<CauseCount> counts;  ///< By kind (in their order), most frequent first, then name.
  std::int64_t failures = 0;
  std::int64_t unexpected = 0;
  std::int64_t announced = 0;
  /// Zero without interruptions.
  double mtbf_hours = 0;
  double mttf_1024_gpus_hours = 0;
  double per_1000_node_days = 0;
  Availability all;
  std::vector<Availability> types;  ///< In order of first appearance; one entry if all are equal.
};

void describe(config::Visitor& v, CauseCount& count);
void describe(config::Visitor& v, Quantile& quantile);
void describe(config::Visitor& v, Availability& availability);
void describe(config::Visitor& v, TraceStatistics& statistics);

/// A point of the availability over time: holds from `at` until the next point of the type.
struct AvailabilityPoint {
  Instant at;
  std::size_t type = 0;  ///< Index into TraceStatistics::types.
  std::int64_t nodes = 0;
  std::int64_t devices = 0;
};

/// Called at time 0 for each type, whenever a count changed, and at the horizon.
using OnAvailability = std::function<void(const AvailabilityPoint&)>;

/// Collects statistics event by event, in memory that does not depend on their number.
class StatisticsCollector {
 public:
  /// `header`: a trace without events; `absent`: nodes that are absent at the start.
  StatisticsCollector(const Trace& header, const std::vector<NodeId>& absent,
                      OnAvailability on_change = {});
  ~StatisticsCollector();
  StatisticsCollector(const StatisticsCollector&) = delete;
  StatisticsCollector& operator=(const StatisticsCollector&) = delete;

  /// In trace order.
  void add(const ir::ClusterEvent& event);
  TraceStatistics finish(Nanoseconds horizon);

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

/// GPU types of a trace, in order of first appearance.
std::vector<std::string> gpu_types_of(const Trace& trace);

TraceStatistics statistics_of(const Trace& trace, const OnAvailability& on_change = {});

/// Statistics of a file, read twice (once to see which nodes are absent at the start) in bounded
/// memory; a pipe is kept in
/// memory. After problems the result is incomplete.
TraceStatistics statistics_of_file(const std::string& path,
                                   const std::function<void(const Trace& header)>& on_header,
                                   const OnAvailability& on_change,
                                   config::Diagnostics& diagnostics);

}  // namespace orrery::traces
