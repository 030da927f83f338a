/// Recovery policies: what to do when devices vanish or appear. A policy is asked at an event and
/// answers with a value; replay carries it out.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/time.h"
#include "models/base/units.h"
#include "models/ir/cluster_event.h"
#include "models/ir/plan.h"
#include "models/ir/program.h"

namespace orrery::models {

/// One copy of a slice of model state.
struct StateReplica {
  ir::Region region;
  ir::Location location = ir::Location::peer;
  DeviceId device;             ///< Holder, for GPU, host memory and NVMe (of its node).
  std::int64_t iteration = 0;  ///< State after this iteration.
};

/// What a policy may know when it decides.
struct JobState {
  Instant now;
  std::int64_t iteration = 0;           ///< Last finished one.
  ir::Plan plan;                        ///< That was running.
  std::vector<DeviceId> live;           ///< Ascending.
  std::vector<StateReplica> placement;  ///< What survives, and where.
};

/// One transfer that the recovery needs, simulated as a flow.
struct StateTransfer {
  ir::Region region;
  ir::Location from = ir::Location::peer;
  DeviceId source;  ///< Invalid for cloud.
  DeviceId destination;
  Bytes bytes;
};

/// A part of the stall with a fixed duration.
struct RecoveryPhase {
  enum class Kind { detect, decide, reinitialise, warm_up };
  Kind kind = Kind::detect;
  Nanoseconds duration;
  std::string source;  ///< Where the duration comes from.
};

struct RecoveryDecision {
  std::optional<ir::Plan> plan;       ///< None: wait for capacity.
  std::int64_t resume_iteration = 0;  ///< Rolled back to the state after this one.
  std::vector<RecoveryPhase> phases;
  std::vector<StateTransfer> transfers;
  std::string reason;
};

class RecoveryPolicy {
 public:
  virtual ~RecoveryPolicy() = default;
  virtual RecoveryDecision on_event(const JobState& state, const ir::ClusterEvent& event) const = 0;
  virtual std::string name() const = 0;
};

}  // namespace orrery::models
