#include "planners/recovery/kit/in_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "models/base/check.h"
#include "planners/recovery/kit/checkpointing.h"
#include "planners/recovery/kit/restore.h"

namespace orrery::planners {
namespace {

/// Number of ways to choose so many nodes: coefficients by number of chosen nodes.
using Counts = std::vector<double>;

Counts product(const Counts& a, const Counts& b) {
  Counts out(a.size() + b.size() - 1, 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < b.size(); ++j) out[i + j] += a[i] * b[j];
  }
  return out;
}

Counts binomials(int n) {
  Counts row = {1};
  for (int i = 0; i < n; ++i) row = product(row, {1, 1});
  return row;
}

/// Subsets of a ring of n nodes without `run` neighbors in a row, n >= run.
Counts ring_counts(int n, int run) {
  // Cut the ring behind a node that stays: such a node exists. It is the first that stays, after
  // `head` lost ones; the rest is a line whose last lost nodes join those.
  Counts out(static_cast<std::size_t>(n) + 1, 0);
  for (int head = 0; head < run; ++head) {
    // By (length of the last run of lost nodes): ways, after the staying node.
    std::vector<Counts> ways(static_cast<std::size_t>(run), Counts(out.size(), 0));
    if (head + 1 > n) continue;
    ways[0][static_cast<std::size_t>(head)] = 1;
    for (int node = head + 1; node < n; ++node) {
      std::vector<Counts> next(ways.size(), Counts(out.size(), 0));
      for (std::size_t last = 0; last < ways.size(); ++last) {
        for (std::size_t k = 0; k < out.size(); ++k) {
          next[0][k] += ways[last][k];
          if (last + 1 < ways.size() && k + 1 < out.size()) next[last + 1][k + 1] += ways[last][k];
        }
      }
      ways = std::move(next);
    }
    for (int last = 0; last + head < run; ++last) {
      for (std::size_t k = 0; k < out.size(); ++k)
        out[k] += ways[static_cast<std::size_t>(last)][k];
    }
  }
  return out;
}

/// First node and size of each group.
std::vector<std::pair<int, int>> groups_of(int nodes, int replicas, ReplicaPlacement placement) {
  if (placement == ReplicaPlacement::ring || nodes < 2 * replicas) return {{0, nodes}};
  std::vector<std::pair<int, int>> groups;
  const int count = nodes / replicas;
  for (int g = 0; g < count; ++g) groups.emplace_back(g * replicas, replicas);
  groups.back().second += nodes % replicas;
  return groups;
}

/// What a node sends to others, and what it copies over its PCIe, for one checkpoint.
struct NodeTraffic {
  double sent = 0;
  double received = 0;
};

double nic_bandwidth(const models::Cluster& cluster, NodeId id) {
  double sum = 0;
  for (const models::Nic& nic : cluster.node(id).nics) {
    const models::LinkClass& link = cluster.links.at(nic.link);
    sum += link.bandwidth.value * link.efficiency;
  }
  return sum;
}

}  // namespace

std::vector<std::vector<int>> replica_nodes(int nodes, int replicas, ReplicaPlacement placement) {
  ORRERY_CHECK(nodes >= 1 && replicas >= 1, "{} replicas on {} nodes", replicas, nodes);
  std::vector<std::vector<int>> out(static_cast<std::size_t>(nodes));
  for (const auto& [first, size] : groups_of(nodes, replicas, placement)) {
    for (int i = 0; i < size; ++i) {
      for (int r = 0; r < std::min(replicas, size); ++r) {
        out[static_cast<std::size_t>(first + i)].push_back(first + (i + r) % size);
      }
    }
  }
  return out;
}

double replica_survival(int nodes, int replicas, int lost, ReplicaPlacement placement) {
  ORRERY_CHECK(nodes >= 1 && replicas >= 1, "{} replicas on {} nodes", replicas, nodes);
  if (lost < 0 || lost > nodes) return 0;
  Counts good = {1};
  for (const auto& [first, size] : groups_of(nodes, replicas, placement)) {
    good = product(good, ring_counts(size, std::min(replicas, size)));
  }
  const auto k = static_cast<std::size_t>(lost);
  return good[k] / binomials(nodes)[k];
}

std::vector<models::CheckpointLevel> in_memory_levels(const PolicyInput& input,
                                                      const ir::Plan& plan, Seconds iteration_time,
                                                      const InMemoryOptions& options) {
  const models::ReshardBytes bytes = models::all_state_bytes(input.job);
  const std::vector<DeviceId> devices = ir::devices_of(plan);
  const std::vector<Bytes> shares = state_shares(input, plan, bytes);
  std::map<NodeId, int> number;  // Of the plan's nodes, by id.
  std::vector<std::vector<DeviceId>> on_node;
  for (const DeviceId device : devices) {
    const auto [at, fresh] =
        number.try_emplace(input.cluster.device(device).node, static_cast<int>(on_node.size()));
    if (fresh) on_node.emplace_back();
    on_node[static_cast<std::size_t>(at->second)].push_back(device);
  }
  const auto nodes = static_cast<int>(on_node.size());
  const auto replicas = replica_nodes(nodes, options.replicas, options.placement);
  std::vector<NodeTraffic> traffic(on_node.size());
  std::vector<models::CheckpointLevel> levels(replicas.front().size());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const NodeId node = input.cluster.device(devices[i]).node;
    const auto own = static_cast<std::size_t>(number.at(node));
    const std::vector<DeviceId>& mates = on_node[own];
    const auto place = static_cast<std::size_t>(
        std::lower_bound(mates.begin(), mates.end(), devices[i]) - mates.begin());
    for (std::size_t r = 0; r < levels.size(); ++r) {
      const auto to = static_cast<std::size_t>(replicas[own][r]);
      const DeviceId holder = on_node[to][place % on_node[to].size()];
      levels[r].stored_on.push_back(holder);
      levels[r].background.push_back(
          {ir::Location::peer, ir::Location::host_memory, devices[i], holder, shares[i]});
      if (to == own) continue;
      traffic[own].sent += shares[i].value;
      traffic[to].received += shares[i].value;
    }
  }
  double network = 0;
  for (const auto& [node, n] : number) {
    const NodeTraffic& of = traffic[static_cast<std::size_t>(n)];
    const double bandwidth = nic_bandwidth(input.cluster, node);
    const double most = std::max(of.sent, of.received);
    if (most > 0 && bandwidth > 0) network = std::max(network, most / bandwidth);
  }
  const CheckpointCost copy = checkpoint_cost(input, plan, ir::Location::host_memory, bytes, false);
  const double pcie = copy.snapshot.value * static_cast<double>(levels.size());
  const models::Breakdown breakdown = input.evaluator.evaluate(plan).breakdown;
  const double busy = (breakdown.pipeline + breakdown.data_parallel).value;
  const double idle = options.idle_share * (iteration_time.value - busy);
  // NICs and PCIe work beside each other; PCIe is idle while GPUs compute.
  const double wanted = std::max(idle > 0 ? network / idle : 0.0, pcie / iteration_time.value);
  std::int64_t every = std::max<std::int64_t>(1, std::llround(std::ceil(wanted - 1e-9)));
  Nanoseconds stall{0};
  Nanoseconds persist = to_nanoseconds(std::max(wanted, 1e-9) * iteration_time);
  std::string why = fmt::format("{:.3g} s of traffic in {:.3g} s of idle network time an iteration",
                                network, idle);
  if (idle <= 0 && network > 0) {
    stall = persist = to_nanoseconds(Seconds{std::max(network, pcie)});
    every = iterations_between("young", to_seconds(stall), to_seconds(persist), {}, iteration_time,
                               expected_interruptions(input));
    why = "no idle network time: training stops for the traffic";
    for (models::CheckpointLevel& level : levels) level.background.clear();
  }
  for (models::CheckpointLevel& level : levels) {
    level.location = ir::Location::host_memory;
    level.every = every;
    level.stall = &level == &levels.front() ? stall : Nanoseconds{0};
    level.persist = persist;
    level.source = "Gemini 4 and 5: " + why;
  }
  return levels;
}

}  // namespace orrery::planners
