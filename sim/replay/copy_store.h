/// Which copies of the model state exist and what of them survives. Private to sim/replay.
///
/// A copy that is still being persisted is lost when a working device of its layout dies (its
/// source), a node that keeps one of its shares goes down, or the job fails. Devices of a plan that
/// do not work have no share in a copy.
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

namespace orrery::sim {

using DeviceList = std::shared_ptr<const std::vector<DeviceId>>;

/// The devices of a plan, ascending.
struct PlanDevices {
  explicit PlanDevices(const ir::Plan& plan);
  DeviceList all;                   ///< Shares of a copy count over these.
  DeviceList working;               ///< ir::working_devices().
  std::vector<std::uint32_t> idle;  ///< Positions in `all` of those that do not work.
};

class CopyStore {
 public:
  /// A level of checkpoints: location and number among the policy's levels of that location.
  using Slot = std::pair<ir::Location, int>;

  /// Keeps a reference.
  explicit CopyStore(const models::Cluster& cluster) : cluster_(cluster) {}

  /// GPU memory holds the whole state after this iteration.
  void set_gpu(std::int64_t iteration, models::PlanPointer plan, const PlanDevices& devices);
  /// While the plan trains.
  void set_gpu_iteration(std::int64_t iteration);

  /// The iteration from which a slot's next checkpoint counts: that of its last one, whatever
  /// became of it, or the one at which it was first asked for; not after one that was rolled back
  /// to.
  std::int64_t counts_from(Slot slot, std::int64_t now);
  /// The checkpoint of this slot is usable from `end` on. The one before it has been persisted.
  void persist(Slot slot, std::int64_t iteration, models::PlanPointer plan,
               const PlanDevices& devices, DeviceList holders, Instant end);
  /// When the copy that is being persisted is done.
  std::optional<Instant> pending(Slot slot) const;
  /// Many equal cycles passed: the last checkpoint is of a later iteration and its persisting ends
  /// later.
  void shift(Slot slot, std::int64_t iterations, Nanoseconds time);
  /// What is persisted by `now` counts.
  void settle(Instant now);

  /// Forgets copies of later iterations.
  void roll_back(std::int64_t iteration);
  void lose_device(DeviceId device);
  void lose_node(NodeId node);
  void lose_job();

  /// For JobState. Copies of which nothing is left are not in it.
  std::vector<models::StateReplica> list() const;

 private:
  struct Copy {
    std::int64_t iteration = 0;
    ir::Location location = ir::Location::peer;
    models::PlanPointer layout;
    DeviceList devices;    ///< Of the layout.
    DeviceList sources;    ///< Those of them that work.
    DeviceList stored_on;  ///< Null: each its own.
    std::vector<std::uint32_t> gone;
    Instant end;  ///< Of persisting.
  };
  struct Persisted {
    std::deque<Copy> kept;  ///< Oldest first, at most kKept.
    std::optional<Copy> pending;
  };
  static constexpr std::size_t kKept = 2;

  static void lose(Copy& copy, std::size_t position);
  bool touches(const Copy& copy, NodeId node) const;

  const models::Cluster& cluster_;
  std::optional<Copy> gpu_;
  std::map<Slot, Persisted> slots_;
  std::map<Slot, std::int64_t> counts_from_;
};

}  // namespace orrery::sim
