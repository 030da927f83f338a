/// Closed forms of collectives on the bottleneck of the group. The flow simulator uses the same
/// algorithms edge by edge; both agree when nothing is shared (tests/sim_iteration).
#pragma once
#include <span>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/cost/path_function.h"
#include "models/ir/program.h"

namespace orrery::models {

enum class CollectiveAlgorithm { ring, tree, hierarchical };

/// One edge of a ring (or tree) as a long flow: `bytes` over it, then `extra_latency` for the
/// latencies of the remaining steps, which a single flow does not pay.
struct FlowEdge {
  DeviceId source;
  DeviceId destination;
  Bytes bytes;
  Seconds extra_latency;
};

/// The flows of one collective, all started together; it ends when the last one ends. `bytes` is
/// the size of the full (gathered, reduced) tensor. Ring all-reduce over p devices: every edge
/// carries 2(p-1)/p * bytes and pays 2(p-1) latencies [nccl-tests, doc/PERFORMANCE.md]; all-gather
/// and reduce-scatter half of that; broadcast: pipelined chain in group order; all-to-all: one flow
/// for each pair that has bytes.
std::vector<FlowEdge> collective_flows(ir::CollectiveKind kind, std::span<const DeviceId> group,
                                       Bytes bytes, const PathFunction& path,
                                       std::span<const double> bytes_per_peer = {});

/// Time of one collective alone on the network. p = 1 takes no time.
Seconds collective_time(ir::CollectiveKind kind, CollectiveAlgorithm algorithm,
                        std::span<const DeviceId> group, Bytes bytes, const PathFunction& path,
                        std::span<const double> bytes_per_peer = {});

/// alpha + bytes / bandwidth of the path.
Seconds point_to_point_time(DeviceId source, DeviceId destination, Bytes bytes,
                            const PathFunction& path);

}  // namespace orrery::models
