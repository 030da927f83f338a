/// The nodes of a cluster as emulated nodes: what the simulator reads from the cluster file is what
/// the emulated network gets.
#pragma once
#include <string>
#include <vector>

#include "executor/netlab/spec.h"
#include "models/spec/cluster.h"

namespace orrery::tools {

/// Port: the sum of the node's NICs, each at what large messages achieve, and half of the latency
/// of its slowest NIC and of its leaf. Leaves share uplinks, pairs have their overrides. Speed of a
/// node's devices: peak x efficiency at fp32, or at the first dtype that all GPU types have. Links
/// inside nodes are not emulated.
executor::NetlabSpec netlab_of(const models::Cluster& cluster);

/// What the emulation cannot do as the simulator does it, in words: several NICs of a node are one
/// port, devices of a node are joined by its loopback.
std::vector<std::string> netlab_differences(const models::Cluster& cluster);

}  // namespace orrery::tools
