/// Checkpoints in host memory on several nodes: where the replicas lie, how likely a loss of nodes
/// leaves one of each, and how often traffic between the nodes' idle times allows them.
/// [Gemini, Wang et al., SOSP 2023]
#pragma once
#include <cstdint>
#include <vector>

#include "models/base/units.h"
#include "models/interfaces/recovery_policy.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

enum class ReplicaPlacement {
  /// Groups of as many nodes as replicas, each holding all shares of its group; where they do not
  /// divide the nodes, the last group is larger and a ring. [Gemini, Algorithm 1]
  mixed,
  ring,  ///< Each node's share on itself and on the nodes that follow it.
};

/// For each of `nodes` nodes: the nodes that hold its share, itself first; as many as `replicas`,
/// at most all. nodes >= 1, replicas >= 1.
std::vector<std::vector<int>> replica_nodes(int nodes, int replicas, ReplicaPlacement placement);

/// Probability that each share still has a holder after `lost` different nodes, any set of them
/// equally likely, are gone at once. Exact. [Gemini 4.2, Theorem 1 and Corollary 1]
double replica_survival(int nodes, int replicas, int lost, ReplicaPlacement placement);

struct InMemoryOptions {
  int replicas = 2;
  ReplicaPlacement placement = ReplicaPlacement::mixed;
  /// Share of an iteration's idle network time that checkpoints may use.
  double idle_share = 1;
};

/// One level for each replica. All replicas of a checkpoint go through the NICs while these are
/// idle: iteration time without the exposed pipeline and data-parallel communication that the
/// evaluator reports; every k-th iteration with the least k whose idle time suffices. Copies over
/// PCIe, one for each replica that a node takes, and traffic run beside training, without stall.
/// Where a node idles at no time, training stops for the traffic, every k-th iteration by
/// young_interval().
std::vector<models::CheckpointLevel> in_memory_levels(const PolicyInput& input,
                                                      const ir::Plan& plan, Seconds iteration_time,
                                                      const InMemoryOptions& options);

}  // namespace orrery::planners
