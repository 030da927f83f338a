/// Fleets that could be rented: whole nodes of a cluster file that lists what is on offer.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "experiments/study/execute.h"
#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/config/diagnostics.h"
#include "models/spec/cluster.h"

namespace orrery::experiments {

/// "8..64 of A100, H100": so many GPUs of these types, whose names may be cut short; "8..64": of
/// all types of the cluster.
struct RentRange {
  std::int64_t least = 1;
  std::int64_t most = 0;
  std::vector<std::string> types;  ///< Names of the cluster; empty: all.
};
/// What is wrong goes to `diagnostics`, at `at`.
RentRange parse_rent(const std::string& text, const models::Cluster& cluster,
                     const config::Position& at, config::Diagnostics& diagnostics);

struct Fleet {
  std::string name;           ///< "2 nodes of 8 x A100-80GB".
  std::vector<NodeId> nodes;  ///< Ascending.
  std::int64_t gpus = 0;
  DollarsPerSecond price;  ///< Of all its GPUs.
};

/// "8 x A100-80GB": what a node holds.
std::string node_kind(const models::Cluster& cluster, const models::Node& node);
/// Nodes by kind, in the order of the cluster.
std::vector<std::pair<std::string, std::vector<NodeId>>> node_kinds(const models::Cluster& cluster);

inline constexpr std::size_t kMostFleets = 100'000;
/// All numbers of nodes of each kind, the first ones of the kind, cheapest first; of equal price
/// fewer GPUs first. GPU types without a price, and more than kMostFleets, are problems, at `at`.
/// `spot`: by spot prices where there are such.
std::vector<Fleet> fleets(const RentRange& range, const models::Cluster& cluster, bool spot,
                          const config::Position& at, config::Diagnostics& diagnostics);

/// The cluster with these nodes alone, ascending.
models::Cluster only_nodes(const models::Cluster& cluster, const std::vector<NodeId>& nodes);

/// No plan on this cluster trains more tokens per second (planners/orrery/bound.h).
double most_tokens_per_second(const LoadedRun& run);

}  // namespace orrery::experiments
