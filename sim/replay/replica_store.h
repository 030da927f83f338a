/// Which replicas of the model state exist, and which of their shards survive. Private to
/// sim/replay.
///
/// A replica that is still being persisted is lost when a working device of its layout dies (its
/// source), a node that stores one of its shards goes down, or the job fails. Devices of a plan
/// that do not work have no shard.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "models/base/time.h"
#include "models/interfaces/recovery_policy.h"
#include "models/spec/cluster.h"
#include "sim/replay/device_states.h"

namespace orrery::sim {

using DeviceList = std::shared_ptr<const std::vector<DeviceId>>;

/// The devices of a plan, ascending.
struct PlanDevices {
  explicit PlanDevices(const ir::Plan& plan);
  bool works(DeviceId device) const;
  std::int64_t working_count() const { return static_cast<std::int64_t>(working->size()); }
  DeviceList all;                   ///< Shards of a replica are numbered by these.
  DeviceList working;               ///< ir::working_devices().
  std::vector<std::uint32_t> idle;  ///< Positions in `all` of those that do not work.
};

class ReplicaStore {
 public:
  /// A level of checkpoints: location and number among the policy's levels of that location.
  using Slot = std::pair<ir::Location, int>;

  /// Keeps a reference.
  explicit ReplicaStore(const models::Cluster& cluster) : cluster_(cluster) {}

  /// GPU memory holds the whole state after this iteration.
  void set_gpu(std::int64_t iteration, models::PlanPointer plan, const PlanDevices& devices);
  /// While the plan trains.
  void set_gpu_iteration(std::int64_t iteration);

  /// The iteration from which a slot's next checkpoint counts: that of its last one, whatever
  /// became of it, or the one at which it was first asked for; not after one that was rolled back
  /// to.
  std::int64_t counts_from(Slot slot, std::int64_t now);
  /// The checkpoint of this slot is usable from `end` on; the one before it has been persisted.
  void persist(Slot slot, std::int64_t iteration, models::PlanPointer plan,
               const PlanDevices& devices, DeviceList stored_on, Instant end);
  /// When the checkpoint that is being persisted is done.
  std::optional<Instant> pending(Slot slot) const;
  /// Skips many equal cycles: the last checkpoint is of a later iteration, and its persisting ends
  /// later.
  void shift(Slot slot, std::int64_t iterations, Nanoseconds time);
  /// Checkpoints whose persisting ends by `now` become usable.
  void settle(Instant now);

  /// Forgets replicas of later iterations.
  void roll_back(std::int64_t iteration);
  /// GPU memory is lost with its device, host memory and NVMe with their node, all GPU memory when
  /// the job fails; the cloud never loses anything.
  void lose(const DeviceStates::Change& change);

  /// For JobState, without replicas that have lost every shard.
  std::vector<models::StateReplica> list() const;

 private:
  struct Replica {
    std::int64_t iteration = 0;
    ir::Location location = ir::Location::peer;
    models::PlanPointer layout;
    DeviceList devices;    ///< Of the layout.
    DeviceList sources;    ///< The working ones.
    DeviceList stored_on;  ///< Null: each device stores its own shard.
    std::vector<std::uint32_t> lost_shards;
    Instant end;  ///< Of persisting.

    const std::vector<DeviceId>& places() const { return stored_on ? *stored_on : *devices; }
    void lose_shard(std::size_t position);
  };
  struct Persisted {
    std::deque<Replica> kept;  ///< Oldest first, at most kKept.
    std::optional<Replica> pending;
  };
  static constexpr std::size_t kKept = 2;

  void lose_device(DeviceId device);
  void lose_node(NodeId node);

  const models::Cluster& cluster_;
  std::optional<Replica> gpu_;
  std::map<Slot, Persisted> slots_;
  std::map<Slot, std::int64_t> counts_from_;
};

}  // namespace orrery::sim
