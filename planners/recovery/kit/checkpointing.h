/// What checkpoints cost, how often to take them, and where replicas in host memory go.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/units.h"
#include "models/interfaces/recovery_policy.h"
#include "planners/recovery/kit/phases.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// How long a checkpoint takes if nothing else runs: bytes of each node over the bandwidth of its
/// links.
struct CheckpointCost {
  Seconds snapshot;  ///< GPU to host memory, all devices of a node at once over their PCIe.
  Seconds persist;   ///< Host memory to NVMe or cloud; 0 for host memory.
  Bytes bytes;       ///< Written in all.
  std::vector<models::StateTransfer> uploads;  ///< From host memory; to the cloud only.
};

/// The cost of writing the whole state. In the cloud each slice is written once, by the replica
/// with the lowest id; elsewhere each device writes its own shard. The cluster has the location
/// (location_problem()).
CheckpointCost checkpoint_cost(const PolicyInput& input, const ir::Plan& plan,
                               ir::Location location);

/// Why there can be no checkpoints there: no object storage, a node without NVMe.
std::optional<models::Infeasible> location_problem(const models::Cluster& cluster,
                                                   ir::Location location);

/// Setting `location` of policies that persist checkpoints in one place.
enum class PersistTo { cloud, nvme };
std::vector<std::pair<PersistTo, const char*>> enum_names(PersistTo);
ir::Location location_of(PersistTo to);

/// The input's rate of interruptions per second; where it is unknown, that of RSC-1: 6.5 failures
/// per 1,000 node-days [Kokolis et al. 2025, unverified] on all nodes of the cluster. With
/// PolicyInput::seen that counts as one interruption in its mean time, beside what has been seen:
/// (1 + count) / (mean time + elapsed).
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

/// A setting: the time between checkpoints, by a rule, by a multiple of what a rule says
/// ("young*0.5"), or in seconds.
struct CheckpointInterval {
  enum class Rule {
    automatic,  ///< Young's for every policy; with constants as_published as `own`.
    own,        ///< The rule or figure of the policy's source.
    young,
    daly,
    availability,
    tuned,
    seconds,
  };
  Rule rule = Rule::automatic;
  Seconds seconds = {};  ///< Of the rule `seconds`; positive.
  double factor = 1;     ///< Of what young, daly, availability or tuned say; positive.
};
bool from_scalar(const std::string& text, CheckpointInterval& out, std::string& error);
std::string to_scalar(const CheckpointInterval& interval);

/// The same, or "never".
struct OptionalInterval {
  std::optional<CheckpointInterval> interval = CheckpointInterval{};
};
bool from_scalar(const std::string& text, OptionalInterval& out, std::string& error);
std::string to_scalar(const OptionalInterval& interval);

/// What is meant by `automatic` and `own` where the policy's own is `own`; Young's stays automatic.
CheckpointInterval chosen(const CheckpointInterval& interval, const CheckpointInterval& own,
                          Constants constants);
OptionalInterval chosen(const OptionalInterval& interval, const CheckpointInterval& own,
                        Constants constants);

/// What a checkpoint costs its job.
struct CheckpointTimes {
  Seconds stall;    ///< Training stops.
  Seconds persist;  ///< Until it is usable, the stall included.
  Seconds restart;  ///< Of a restart from it.
};
/// Iterations between checkpoints: at least 1, and enough for one to be persisted before the next.
std::int64_t iterations_between(const CheckpointInterval& interval, const CheckpointTimes& times,
                                Seconds iteration_time, double interruptions_per_second);

/// Setting `checkpoint_interval` of policies that keep a checkpoint in the cloud in addition to
/// their own way to recover. Training stops for the snapshot to host memory, which is then
/// persisted. Empty if never, or if the cluster has no object storage.
std::vector<models::CheckpointLevel> cloud_checkpoint(const PolicyInput& input,
                                                      const OptionalInterval& interval,
                                                      const ir::Plan& plan, Seconds restart,
                                                      Seconds iteration_time);

/// On which nodes replicas in host memory go. [Gemini, Wang et al., SOSP 2023]
enum class ReplicaPlacement {
  /// Groups of as many nodes as replicas, each holding all shards of its group; where they do not
  /// divide the nodes, the last group is larger and a ring. [Gemini, Algorithm 1]
  mixed,
  ring,  ///< Each node's shards on itself and on the nodes that follow it.
};
std::vector<std::pair<ReplicaPlacement, const char*>> enum_names(ReplicaPlacement);

/// By node of `nodes`: the nodes that hold its shards, itself first; as many as `replicas`, at most
/// all. nodes >= 1, replicas >= 1.
std::vector<std::vector<int>> replica_nodes(int nodes, int replicas, ReplicaPlacement placement);

/// Probability that some replica of each shard is left when `lost` different nodes, any set of them
/// equally likely, are lost at once. Exact. [Gemini 4.2, Theorem 1 and Corollary 1]
double replica_survival(int nodes, int replicas, int lost, ReplicaPlacement placement);

struct InMemorySettings {
  int replicas = 2;  ///< 0: no checkpoints in host memory.
  ReplicaPlacement placement = ReplicaPlacement::mixed;
  /// Share of an iteration's idle network time that checkpoints may use.
  double idle_share = 1;
};

/// One level for each replica. All replicas of a checkpoint go through the NICs while these are
/// idle: iteration time without the exposed pipeline and data-parallel communication that the
/// evaluator reports; every k-th iteration with the least k whose idle time suffices. Copies over
/// PCIe, one for each replica that a node takes, and traffic overlap training, without stall.
/// Nodes are grouped in the order in which the plan names them.
/// Where a node is never idle, training stops for the traffic, every k-th iteration by
/// young_interval(). [Gemini 4 and 5]
std::vector<models::CheckpointLevel> in_memory_checkpoints(const PolicyInput& input,
                                                           const ir::Plan& plan,
                                                           Seconds iteration_time,
                                                           const InMemorySettings& settings);

}  // namespace orrery::planners
