/// How long the steps of a ring take when its edges differ. In every step each member passes on
/// what the step before brought it; it starts to send when it has that and has put its own message
/// of the step before on the wire, not when that one has arrived: rings of NCCL and of the executor
/// keep several messages in flight. So a far edge costs its latency about once for each round of
/// the ring, and a narrow one its transmission in every step.
#pragma once
#include <span>

#include "models/base/units.h"

namespace orrery::models {

/// One edge of a ring, for messages of one size.
struct RingEdge {
  Seconds transmission;  ///< Message over bandwidth: the next message can follow after it.
  Seconds latency;       ///< Until the last byte arrives.
  bool operator==(const RingEdge&) const = default;
};

/// Time until the messages of the last step have arrived, `steps` >= 0. With start(0, i) = 0:
///   start(k, i) = max(start(k-1, i) + transmission_i,
///                     start(k-1, i-1) + transmission_{i-1} + latency_{i-1}),
/// the longest chain of which is a walk along consecutive edges that waits at its narrowest one.
/// Equal edges: steps * (transmission + latency). [Thakur et al. 2005; recurrence derived]
Seconds ring_duration(std::span<const RingEdge> edges, int steps);

/// What ring_duration() takes beyond the transmissions of the narrowest edge; equal edges: steps *
/// latency. At least the latency of the narrowest edge.
Seconds ring_latency(std::span<const RingEdge> edges, int steps);

}  // namespace orrery::models
