/// Changes to a cluster that a run asks for: what a paper leaves open about its hardware, and by
/// how much a result moves with it.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "models/config/visitor.h"
#include "models/spec/cluster.h"

namespace orrery::experiments {

struct HardwareChanges {
  /// Share of peak that blocks reach, by GPU type, instead of the library's.
  std::map<std::string, config::Located<double>> efficiency;
  double scale_efficiency = 1;                           ///< Of all GPU types, on top.
  double scale_compute = 1;                              ///< Peak rates of all GPU types.
  std::map<std::string, config::Located<double>> price;  ///< $/h of a GPU, by GPU type.
  std::map<std::string, config::Located<Watts>> power;   ///< Of a GPU's board, by GPU type.
  /// Bandwidth of everything between nodes: NICs, fabric, pairs, staging through hosts.
  double scale_network = 1;
  double scale_node = 1;     ///< Bandwidth of everything inside nodes: NVLink, PCIe.
  double scale_latency = 1;  ///< Of all links.
  /// Fabric::leaf_oversubscription, instead of what the cluster says of the uplinks of its leaves.
  std::optional<double> oversubscription;
  /// Bandwidth of a link class, before the factors.
  std::map<std::string, config::Located<BytesPerSecond>> link;
  /// Names of nodes and numbers of devices that are there but not used.
  std::vector<config::Located<std::string>> without;
  /// Most GPUs of a type that are used, by GPU type; planners get the first ones by their ids.
  std::map<std::string, config::Located<std::int64_t>> at_most;
  /// A plan that was made for other GPUs is carried over to these (carry_over.h).
  bool any_cluster = false;

  bool none() const;
};

/// YAML: a part of a run.
void describe(config::Visitor& v, HardwareChanges& changes);
/// Its fields as those of a larger description, such as the flags of a command.
void describe_fields(config::Visitor& v, HardwareChanges& changes);

/// Carries them out and seals the cluster anew, so that its hash says what it is. GPU types that it
/// does not have are problems. A link class that is used both inside nodes and between them is
/// scaled by `scale_network`.
void apply(const HardwareChanges& changes, models::Cluster& cluster,
           config::Diagnostics& diagnostics);

/// Devices that a list names, by their nodes, their numbers or ranges of these (24-31); unknown
/// names are problems.
std::set<DeviceId> devices_named(const std::vector<config::Located<std::string>>& listed,
                                 const models::Cluster& cluster, config::Diagnostics& diagnostics);

/// The devices that `without` and `at_most` leave to a planner, ascending. Unknown names, and none
/// left, are problems.
std::vector<DeviceId> devices_left(const HardwareChanges& changes, const models::Cluster& cluster,
                                   config::Diagnostics& diagnostics);

/// What costs `used` when the plan's devices are paid, when all of the cluster are; nothing where a
/// GPU type has no price.
std::optional<Dollars> cluster_dollars(Dollars used, const models::Cluster& cluster,
                                       const std::vector<DeviceId>& devices);

/// Where the prices of these devices come from: "list prices" (those of the cluster and the
/// library) or "given for A100-80GB, else list prices".
std::string price_source(const HardwareChanges& changes, const std::vector<DeviceId>& devices,
                         const models::Cluster& cluster);

/// What a plan uses that `without` and `at_most` do not leave, in words; "": nothing.
std::string overuse(const HardwareChanges& changes, const std::vector<DeviceId>& used,
                    const models::Cluster& cluster);

}  // namespace orrery::experiments
