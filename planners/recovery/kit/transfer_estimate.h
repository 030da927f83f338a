/// A closed form for the time of state transfers, for policies that weigh a change or fit it in
/// before a deadline. Replay simulates the transfers themselves.
#pragma once
#include <vector>

#include "models/base/units.h"
#include "models/interfaces/transfer_timer.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// Of all transfers side by side, the most that any of these has to carry over its bandwidth: the
/// cloud (shared or by node), a node's NVMe or host memory, its NICs in either direction, a
/// device's slot. Latency of the cloud once. 0 of none.
Seconds transfer_estimate(const PolicyInput& input,
                          const std::vector<models::StateTransfer>& transfers);

}  // namespace orrery::planners
