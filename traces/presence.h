/// Which devices are present: follows the events of a trace and reports where they contradict one
/// another (a node leaves that is not there, a notice without its leave). Shared by readers and
/// statistics.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/base/id_vector.h"
#include "models/ir/cluster_event.h"
#include "traces/layout.h"

namespace orrery::traces {

/// What does not fit, at the event with this sequence number.
struct Contradiction {
  std::int64_t sequence = 0;
  std::string what;
  std::string hint;
};

/// Memory is a few bytes per device, whatever the number of events.
///
/// Rules: fail, leave and notice of a node need one device of it that is there; of devices, all of
/// them. What leaves with its node while it is broken has left: what comes back is new. join of
/// devices that are there is only legal to withdraw their notice. repair of a node brings back its
/// failed devices, at least one; repair of devices needs that all have failed. The first event of a
/// node that is absent at the start joins the whole node. A notice ends by its deadline (trace.h)
/// unless the trace ends before.
class Presence {
 public:
  explicit Presence(const TraceLayout& layout);

  /// Takes the next event, in trace order; what contradicts is appended to `found`, and the event
  /// then changes nothing. Events of the job and of links change nothing either.
  void apply(const ir::ClusterEvent& event, std::vector<Contradiction>& found);
  /// The trace ends here: reports notices whose deadline has passed.
  void finish(Instant horizon, std::vector<Contradiction>& found);

  /// Before its node's first event a device counts as there.
  bool present(DeviceId device) const {
    return states_[device] == State::present || states_[device] == State::unknown;
  }
  /// Devices of the node that are there.
  int present(NodeId node) const { return present_of_[node]; }
  /// It was given notice, and the notice has not ended.
  bool noticed(DeviceId device) const { return notices_.contains(device); }
  /// Says that the node is absent at the start; before the first event.
  void set_absent(NodeId node);

 private:
  enum class State : std::uint8_t { unknown, present, failed, left };
  using Pending = std::pair<Instant, std::int64_t>;  ///< Deadline, sequence of the notice.

  std::string why_not(const ir::ClusterEvent& event, const std::vector<DeviceId>& devices,
                      std::string& hint) const;
  std::string why_not_all(const ir::ClusterEvent& event, const std::vector<DeviceId>& devices,
                          State needed) const;
  std::string name(DeviceId device) const;
  void meet_nodes(const ir::ClusterEvent& event, const std::vector<DeviceId>& devices,
                  std::vector<Contradiction>& found);
  void set(DeviceId device, State state);
  void end_notice(DeviceId device);
  void expire(Instant now, std::vector<Contradiction>& found);

  const TraceLayout& layout_;
  IdVector<DeviceId, State> states_;
  IdVector<NodeId, int> present_of_;
  IdVector<NodeId, std::int64_t> changed_;  ///< Sequence of the last change, -1: none.
  std::map<DeviceId, Pending> notices_;
  std::set<std::pair<Pending, DeviceId>> deadlines_;
};

}  // namespace orrery::traces
