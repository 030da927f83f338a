/// How the closed forms see the network: latency and bandwidth between two devices.
#pragma once
#include <functional>

#include "models/base/ids.h"
#include "models/spec/topology.h"

namespace orrery::models {

/// Usually [&](DeviceId a, DeviceId b) { return topology.path(a, b); }.
using PathFunction = std::function<Path(DeviceId, DeviceId)>;

}  // namespace orrery::models
