/// Synthetic traces: failures from published counts, and spot nodes that come and go. Settings are
/// data (models/library/traces/*.yaml or files of the user's own); every number in them says where
/// it comes from or that it is assumed.
///
/// Streams of random numbers: each root cause, GPU type and kind of disturbance draws from its own,
/// named after it, so that adding one does not move the others. (Victims are drawn among what is
/// there; where two processes meet on one node the later victim may change.)
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/base/time.h"
#include "models/spec/cluster.h"
#include "traces/generate/settings.h"
#include "traces/trace.h"

namespace orrery::traces {

/// What the events happen to.
struct GeneratorNodes {
  std::vector<TraceNode> nodes;
  std::vector<int> leaf;  ///< By node: its leaf switch.
};
GeneratorNodes nodes_of_cluster(const models::Cluster& cluster);
/// `count` equal nodes node0, node1, ... on one leaf.
GeneratorNodes equal_nodes(int count, int gpus, const std::string& gpu_type);

/// What in the generator does not fit the nodes (a GPU type that is not there), or would make more
/// than kMostEvents until `horizon`, in words.
std::vector<std::string> find_problems(const TraceGenerator& generator, const GeneratorNodes& nodes,
                                       Nanoseconds horizon);

/// The trace until `horizon`; deterministic in its arguments. Unexpected failures of cause c come
/// as a renewal process of the mean rate `count / period x devices / gpus`, stationary from time 0
/// on; with `conditioned` each cause has its expected number of events, rounded so that the sum is
/// right, at independent uniform times. Failures whose victims would all be gone do not happen.
/// Aborts if the horizon is not positive or find_problems() finds any.
Trace generate(const TraceGenerator& generator, const GeneratorNodes& nodes, Nanoseconds horizon,
               std::uint64_t seed);

}  // namespace orrery::traces
