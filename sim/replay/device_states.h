/// Which devices live, leave or run slowly and what they cost: the cluster's side of a replay.
/// Private to sim/replay.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/base/id_vector.h"
#include "models/interfaces/recovery_policy.h"
#include "models/spec/cluster.h"
#include "sim/replay/event_batch.h"
#include "sim/replay/iteration_timer.h"

namespace orrery::sim {

class DeviceStates {
 public:
  /// Keeps a reference to `cluster`.
  DeviceStates(const models::Cluster& cluster, const std::vector<NodeId>& absent, bool spot);

  /// What a batch of events did.
  struct Change {
    std::vector<DeviceId> died;
    std::vector<NodeId> lost_nodes;  ///< Their last device died.
    bool job_failed = false;         ///< The job itself failed.
    bool health = false;             ///< Speed of a device or a link.
    bool surprise = false;           ///< Something died that had not been given notice, or failed.
    /// Devices died, all of them to a notice that had run out.
    bool announced() const { return !died.empty() && !surprise && !job_failed; }
  };
  Change apply(Events events);

  bool live(DeviceId device) const { return state_[device] == State::live; }
  bool node_live(NodeId node) const { return live_of_[node] > 0; }
  std::int64_t live_count() const { return live_count_; }
  std::vector<DeviceId> live() const;
  /// Fills in who lives, leaves or is slow.
  void describe_in(models::JobState& state) const;
  models::DegradedLinks degraded_links() const { return {links_.begin(), links_.end()}; }
  /// What iterations on these devices (ascending) run under.
  IterationConditions conditions(const std::vector<DeviceId>& devices) const;
  /// The price of all live devices. `priced` becomes false if one has no price.
  DollarsPerSecond price(bool& priced) const;

 private:
  enum class State : std::uint8_t { live, failed, left };
  std::vector<DeviceId> scope_of(const ir::ClusterEvent& event) const;
  void apply(const ir::ClusterEvent& event, Change& change);
  void kill(DeviceId device, State state, Change& change);
  void apply_health(const ir::ClusterEvent& event, Change& change);
  std::vector<models::SlowDevice> slow(const std::vector<DeviceId>& devices) const;

  const models::Cluster& cluster_;
  IdVector<NodeId, int> first_;  ///< Id of the node's first device.
  IdVector<DeviceId, State> state_;
  IdVector<NodeId, int> live_of_;
  std::int64_t live_count_ = 0;
  std::map<DeviceId, Instant> leaving_;
  IdVector<DeviceId, double> factor_;
  double job_factor_ = 1;
  std::map<std::string, double> links_;  ///< Factor of each degraded link.
  IdVector<DeviceId, double> price_;     ///< Dollars per second; negative: none.
};

}  // namespace orrery::sim
