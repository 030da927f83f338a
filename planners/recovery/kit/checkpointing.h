/// What checkpoints cost and how often to take them.
#pragma once
#include <string>
#include <vector>

#include "models/base/units.h"
#include "models/interfaces/recovery_policy.h"
#include "models/reshard/reshard_plan.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// How long a level takes if nothing else runs: bytes of each node over the bandwidth of its link.
struct CheckpointCost {
  Seconds snapshot;  ///< GPU to host memory, all devices of a node beside each other on their PCIe.
  Seconds persist;   ///< Host memory to NVMe or cloud; 0 for host memory.
  Bytes bytes;       ///< Written in all.
  std::vector<models::StateTransfer> uploads;  ///< From host memory; to the cloud only.
};

/// `deduplicated`: replicas of a slice are written once, by the device with the lowest id. The
/// cluster has the location (location_problem()).
CheckpointCost checkpoint_cost(const PolicyInput& input, const ir::Plan& plan,
                               ir::Location location, const models::ReshardBytes& bytes,
                               bool deduplicated);

/// Why checkpoints cannot lie there (no object storage, a node without NVMe); empty: they can.
std::string location_problem(const models::Cluster& cluster, ir::Location location);

/// The input's rate of interruptions per second; where it is unknown, that of RSC-1: 6.5 failures
/// per 1,000 node-days [Kokolis et al. 2025, unverified] on all nodes of the cluster.
double expected_interruptions(const PolicyInput& input);

/// Young's interval: sqrt(2 w / rate) between checkpoints of cost w. [Young, CACM 1974]
Seconds young_interval(Seconds cost, double interruptions_per_second);
/// Daly's higher-order interval. [Daly, FGCS 2006, eq. 37]
Seconds daly_interval(Seconds cost, double interruptions_per_second);
/// Availability-optimal: w + sqrt(2 (M + R) w + w^2). [arXiv 2410.18124]
Seconds availability_interval(Seconds cost, double interruptions_per_second, Seconds restart);
/// E[ETTR] = (1 - N r (u0 + interval / 2)) / (1 + w / interval), can be negative. [Kokolis et al.
/// 2025, arXiv 2410.21680]
double expected_ettr(double interruptions_per_second, Seconds restart, Seconds interval,
                     Seconds cost);

/// Option `interval` of policies: "young", "daly", "availability", "tuned", or seconds. Iterations
/// between checkpoints, at least 1 and so many that one is persisted before the next.
std::int64_t iterations_between(const std::string& interval, Seconds stall, Seconds persist,
                                Seconds restart, Seconds iteration_time,
                                double interruptions_per_second);
/// What is wrong with a value of that option; empty if nothing.
std::string interval_problem(const std::string& interval);

}  // namespace orrery::planners
