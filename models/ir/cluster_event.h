/// Events of a cluster's life: what traces are made of and what policies answer.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/time.h"
#include "models/base/units.h"

namespace orrery::ir {

enum class EventKind {
  fail,     ///< Gone at once.
  repair,   ///< Back from a failure.
  notice,   ///< Will leave after `notice`.
  leave,    ///< Preempted or taken away.
  join,     ///< New or returned capacity.
  slow,     ///< Runs at `factor` of its speed.
  restore,  ///< Back to full speed or bandwidth.
  degrade,  ///< A link runs at `factor` of its bandwidth.
};

/// What an event hits. Exactly one member is meaningful for its kind.
struct EventScope {
  enum class Kind { devices, node, link, job };
  Kind kind = Kind::devices;
  std::vector<DeviceId> devices;
  NodeId node;
  std::string link;
  auto operator<=>(const EventScope&) const = default;
};

/// Events are ordered by (time, kind, sequence).
struct ClusterEvent {
  Instant time;
  EventKind kind = EventKind::fail;
  EventScope scope;
  std::string cause;
  Nanoseconds notice;
  /// Until the job notices a failure or a slow device; none: the policy's own default.
  std::optional<Nanoseconds> detection;
  double factor = 1.0;
  std::optional<DollarsPerSecond> price;  ///< New price per device, if it changes.
  std::int64_t sequence = 0;              ///< Line of the trace.
};

}  // namespace orrery::ir
