/// Events that a replay handles together. Private to sim/replay.
#pragma once
#include <span>
#include <string>

#include "models/ir/cluster_event.h"
#include "models/spec/cluster.h"

namespace orrery::sim {

using Events = std::span<const ir::ClusterEvent>;

/// The events at the instant of the first one, up to one that brings back a node from which
/// something died at this instant: it starts a batch of its own, so that the policy sees the loss.
Events first_batch(Events events, const models::Cluster& cluster);

/// The causes of a batch, each once, in trace order: "gpu, network".
std::string cause_of(Events events);

}  // namespace orrery::sim
