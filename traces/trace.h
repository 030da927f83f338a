/// A trace: what happens to a cluster over time. CSV of ir::ClusterEvent with a `# key: value`
/// header; readers for foreign formats, generators and statistics all make or take this.
///
/// Columns: time, kind, scope, cause, notice, detection, factor, price; the last six may be absent
/// or empty. Times and durations carry units ("3.5 h", "120 s") or are plain seconds. Scope is
/// `node:NAME`, `devices:NAME/0-3+7` (positions in a node; several nodes joined by `;`),
/// `link:NAME` or `job`. A node whose first event is `join` is absent at the start.
///
/// Meaning of the events (traces/presence.h checks it):
/// - fail of `job`: the job dies (software), no device is lost. `slow` of `job`: all devices run at
///   `factor`, on top of what is said of single devices, until the next slow or restore of `job`.
/// - slow, restore, degrade and prices belong to the device or link, whether it is there or not.
/// - A notice ends with the leave or failure of its devices, at the announced time at the latest,
///   or is withdrawn by a `join` of the same scope.
/// - `join` brings back what left or failed, `repair` only what failed.
/// - A price holds from its event on, for the devices of its scope. A price that changes alone
/// comes
///   with kind `restore`, which changes nothing else for devices that are not slow.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/base/id_vector.h"
#include "models/base/time.h"
#include "models/ir/cluster_event.h"

namespace orrery::traces {

inline constexpr std::int64_t kSecond = 1'000'000'000;  ///< In nanoseconds.
inline constexpr std::int64_t kMillisecond = 1'000'000;
/// The latest time of a trace, a hundred years. The sum of two (a time and a notice) fits into 64
/// bits.
inline constexpr std::int64_t kLongestTime = kSecond * 86'400 * 36'525;
inline constexpr double kHour = 3600;  ///< In seconds.
inline constexpr double kDay = 24 * kHour;

/// Most events of a trace that is kept in memory: about a gigabyte.
inline constexpr std::int64_t kMostEvents = 5'000'000;

/// A node of the trace's own numbering. Device ids count node by node, as in a cluster file.
struct TraceNode {
  std::string name;
  std::string gpu_type;  ///< Empty: not said.
  int gpus = 1;
  auto operator<=>(const TraceNode&) const = default;
};

struct Trace {
  std::string source;  ///< Where it comes from, in words.
  std::uint64_t seed = 0;
  Nanoseconds horizon;  ///< The trace says what happens until then.
  /// Other header lines, in order.
  std::vector<std::pair<std::string, std::string>> header;
  std::vector<TraceNode> nodes;
  /// By (time, kind, sequence). NodeId and DeviceId are of `nodes`.
  std::vector<ir::ClusterEvent> events;
};

/// Nodes that are absent at the start, ascending. What counts is the first event that changes
/// which devices are present: slow, restore and degrade may come before.
std::vector<NodeId> absent_at_start(const Trace& trace);

/// After events were left out: nodes of `absent`, which are absent at the start, that no event
/// shows to be so leave at time 0. Sorts the events.
void keep_absent(const std::vector<NodeId>& absent, Trace& trace);

/// As absent_at_start(), event by event, in trace order, for traces that are not kept.
class AbsentNodes {
 public:
  AbsentNodes() = default;
  explicit AbsentNodes(const std::vector<TraceNode>& nodes);
  void add(const ir::ClusterEvent& event);
  std::vector<NodeId> list() const;  ///< Ascending.

 private:
  enum class Seen : std::uint8_t { nothing, there, absent };
  void meet(NodeId node, ir::EventKind kind);

  std::vector<std::int32_t> first_;  ///< Device of each node, and one more.
  IdVector<NodeId, Seen> seen_;
};

/// Orders the events by (time, kind, sequence) and numbers them from 0.
void sort_events(Trace& trace);

}  // namespace orrery::traces
