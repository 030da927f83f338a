/// A closed form for the time of state transfers, for policies that weigh a change or fit it in
/// before a deadline. Replay simulates the transfers themselves.
#pragma once
#include <string>
#include <vector>

#include "models/base/units.h"
#include "models/interfaces/recovery_policy.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// Bytes per second that large messages achieve over a link of the class, and over all NICs of a
/// node together.
double link_bandwidth(const models::Cluster& cluster, const std::string& link);
double nic_bandwidth(const models::Cluster& cluster, const models::Node& node);

/// All transfers run at the same time; the time is the longest that any of these takes for its
/// bytes: the cloud (shared or by node), a node's NVMe or host memory, its NICs in either
/// direction, a device's slot. Latency of the cloud once. 0 without transfers.
Seconds transfer_estimate(const PolicyInput& input,
                          const std::vector<models::StateTransfer>& transfers);

/// The same for all phases of a decision.
Seconds stall_estimate(const PolicyInput& input, const models::RecoveryDecision& decision);

}  // namespace orrery::planners
