/// Who is there, who was given notice, who runs slowly and what it costs: the cluster's side of a
/// replay. Private to sim/replay.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/interfaces/recovery_policy.h"
#include "models/spec/cluster.h"
#include "traces/trace.h"

namespace orrery::sim {

class DeviceStates {
 public:
  /// Keeps a reference to `cluster`.
  DeviceStates(const models::Cluster& cluster, const std::vector<NodeId>& absent, bool spot);

  struct Change {
    std::vector<DeviceId> died;      ///< Ascending.
    std::vector<NodeId> lost_nodes;  ///< Their last device died.
    bool job_failed = false;         ///< The job itself failed.
    bool health = false;             ///< Speed of a device or a link.
    bool surprise = false;           ///< Something died that had not been given notice, or failed.
  };
  Change apply(const ir::ClusterEvent& event);

  bool live(DeviceId device) const { return state_[device.index()] == State::live; }
  bool node_live(NodeId node) const { return live_of_[node.index()] > 0; }
  std::int64_t live_count() const { return live_count_; }
  std::vector<DeviceId> live() const;
  std::vector<models::LeavingDevice> leaving() const;
  /// Live devices that do not run at full speed.
  std::vector<models::SlowDevice> slow() const;
  std::vector<models::SlowDevice> slow(const std::vector<DeviceId>& devices) const;
  const std::map<std::string, double>& links() const { return links_; }
  /// Of all live devices. `priced` becomes false if one has no price.
  DollarsPerSecond rate(bool& priced) const;

 private:
  enum class State : std::uint8_t { live, failed, left };
  std::vector<DeviceId> scope_of(const ir::ClusterEvent& event) const;
  void kill(DeviceId device, State state, Change& change);
  void apply_health(const ir::ClusterEvent& event, Change& change);

  const models::Cluster& cluster_;
  std::vector<int> first_;  ///< By node: id of its first device.
  std::vector<State> state_;
  std::vector<int> live_of_;  ///< By node.
  std::int64_t live_count_ = 0;
  std::map<DeviceId, Instant> leaving_;
  std::vector<double> factor_;
  double job_factor_ = 1;
  std::map<std::string, double> links_;  ///< Factor of each degraded link.
  std::vector<double> price_;            ///< Dollars per second; negative: none.
};

}  // namespace orrery::sim
