#include "planners/recovery/kit/checkpointing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "models/base/check.h"
#include "models/base/id_vector.h"
#include "models/config/units.h"
#include "models/reshard/reshard_plan.h"
#include "planners/recovery/kit/node_classes.h"
#include "planners/recovery/kit/restore.h"
#include "planners/recovery/kit/state_layouts.h"
#include "planners/recovery/kit/transfer_estimate.h"

namespace orrery::planners {
namespace {

/// Adds to each device, by id, what it writes when of the holders of a slice the one with the
/// lowest id writes it.
void add_first_holders(const StateMemory::Answer& known, std::vector<double>& by_device) {
  for (const StateSizes::Replicas& slice : known.sizes->slices) {
    int writer = std::numeric_limits<int>::max();
    for (const int holder : slice.holders) {
      writer = std::min(writer, known.to[holder]);
    }
    if (slice.holders.empty()) continue;
    by_device[writer] += slice.bytes;
  }
}

/// All devices of a node to host memory at once: slots, shared uplinks, host memory.
double snapshot_of(const models::Cluster& cluster, const models::Node& node, int first,
                   const std::vector<double>& bytes) {
  const auto bytes_of = [&](int position) { return bytes[first + position]; };
  double slowest = 0;
  double total = 0;
  for (int i = 0; i < static_cast<int>(node.gpu_types.size()); ++i) total += bytes_of(i);
  for (const models::PcieSwitch& group : node.pcie) {
    const models::LinkClass& slot = cluster.links.at(group.link);
    double together = 0;
    for (const int member : group.members) {
      const double own = bytes_of(member);
      together += own;
      slowest = std::max(slowest, own / link_bandwidth(cluster, group.link));
    }
    if (slot.shared) slowest = std::max(slowest, together / link_bandwidth(cluster, group.link));
    if (!group.uplink.empty()) {
      slowest = std::max(slowest, together / link_bandwidth(cluster, group.uplink));
    }
  }
  if (node.host_memory_bandwidth.value > 0) {
    slowest = std::max(slowest, total / node.host_memory_bandwidth.value);
  }
  return slowest;
}

/// Host memory to where the checkpoint is persisted.
double persist_of(const models::Cluster& cluster, const std::vector<double>& of_node, double total,
                  ir::Location location) {
  double slowest = 0;
  if (location == ir::Location::cloud) {
    ORRERY_CHECK(cluster.storage.has_value(), "cluster {} has no object storage", cluster.name);
    const models::ObjectStorage& storage = *cluster.storage;
    const bool shared = storage.scope == models::BandwidthScope::shared;
    if (shared) slowest = total / storage.bandwidth.value;
    for (std::size_t n = 0; n < of_node.size(); ++n) {
      if (of_node[n] <= 0) continue;
      if (!shared) slowest = std::max(slowest, of_node[n] / storage.bandwidth.value);
      const double nics = nic_bandwidth(cluster, cluster.nodes[n]);
      if (nics > 0) slowest = std::max(slowest, of_node[n] / nics);
    }
    return total > 0 ? slowest + storage.latency.value : 0;
  }
  for (std::size_t n = 0; n < of_node.size(); ++n) {
    if (of_node[n] <= 0) continue;
    const BytesPerSecond write = cluster.nodes[n].nvme_write;
    ORRERY_CHECK(write.value > 0, "node {} has no NVMe", cluster.nodes[n].name);
    slowest = std::max(slowest, of_node[n] / write.value);
  }
  return slowest;
}

using IntervalRule = CheckpointInterval::Rule;

constexpr std::array kIntervalRules = {
    std::pair{IntervalRule::automatic, "auto"},
    std::pair{IntervalRule::own, "own"},
    std::pair{IntervalRule::young, "young"},
    std::pair{IntervalRule::daly, "daly"},
    std::pair{IntervalRule::availability, "availability"},
    std::pair{IntervalRule::tuned, "tuned"},
};
constexpr const char* kNoCheckpoints = "never";
constexpr char kTimes = '*';

/// Rules that a factor may follow: those that say a time.
bool takes_factor(IntervalRule rule) {
  return rule != IntervalRule::automatic && rule != IntervalRule::own &&
         rule != IntervalRule::seconds;
}

constexpr double kMostIterations = 1e15;

/// The number of iterations with the best expected_ettr(): it rises to one maximum and falls.
double tuned_iterations(Seconds stall, Seconds restart, Seconds iteration_time, double rate,
                        double least) {
  const auto at = [&](double k) { return expected_ettr(rate, restart, k * iteration_time, stall); };
  double low = least;
  double high = least;
  while (high < kMostIterations && at(2 * high) > at(high)) high *= 2;
  high *= 2;
  while (high - low > 2) {
    const double left = std::floor(low + (high - low) / 3);
    const double right = std::ceil(high - (high - low) / 3);
    if (at(left) >= at(right)) {
      high = right;
    } else {
      low = left;
    }
  }
  double best = low;
  for (double k = low; k <= high; ++k) {
    if (at(k) > at(best)) best = k;
  }
  return best;
}

/// Ways to choose nodes, by the number of chosen nodes.
using Ways = std::vector<double>;

Ways product(const Ways& a, const Ways& b) {
  Ways out(a.size() + b.size() - 1, 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < b.size(); ++j) out[i + j] += a[i] * b[j];
  }
  return out;
}

Ways binomial_row(int n) {
  Ways row = {1};
  for (int i = 0; i < n; ++i) row = product(row, {1, 1});
  return row;
}

/// Subsets of a ring of n nodes without `run` neighbors in a row, n >= run.
Ways ring_ways(int n, int run) {
  // Cut the ring behind a node that stays: such a node exists. It is the first that stays, after
  // `head` lost ones; the rest is a line whose last lost nodes join those.
  Ways out(n + 1, 0);
  for (int head = 0; head < run; ++head) {
    // By (length of the last run of lost nodes): ways, after the staying node.
    std::vector<Ways> ways(run, Ways(out.size(), 0));
    if (head + 1 > n) continue;
    ways[0][head] = 1;
    for (int node = head + 1; node < n; ++node) {
      std::vector<Ways> next(ways.size(), Ways(out.size(), 0));
      for (std::size_t last = 0; last < ways.size(); ++last) {
        for (std::size_t k = 0; k < out.size(); ++k) {
          next[0][k] += ways[last][k];
          if (last + 1 < ways.size() && k + 1 < out.size()) next[last + 1][k + 1] += ways[last][k];
        }
      }
      ways = std::move(next);
    }
    for (int last = 0; last + head < run; ++last) {
      for (std::size_t k = 0; k < out.size(); ++k) out[k] += ways[last][k];
    }
  }
  return out;
}

/// First node and size of each group.
std::vector<std::pair<int, int>> replica_groups(int nodes, int replicas,
                                                ReplicaPlacement placement) {
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

}  // namespace

std::optional<models::Infeasible> location_problem(const models::Cluster& cluster,
                                                   ir::Location location) {
  constexpr const char* kConstraint = "checkpoint location";
  if (location == ir::Location::cloud && !cluster.storage) {
    return models::Infeasible{
        kConstraint,
        fmt::format("cluster {} has no object storage: key `storage` of its file", cluster.name)};
  }
  for (const models::Node& node : cluster.nodes) {
    if (location != ir::Location::nvme) break;
    if (node.nvme_write.value <= 0 || node.nvme_read.value <= 0) {
      return models::Infeasible{
          kConstraint,
          fmt::format("node {} has no NVMe: key `nvme` in the cluster file", node.name)};
    }
  }
  return std::nullopt;
}

std::vector<std::pair<PersistTo, const char*>> enum_names(PersistTo) {
  return {{PersistTo::cloud, "cloud"}, {PersistTo::nvme, "nvme"}};
}

ir::Location location_of(PersistTo to) {
  return to == PersistTo::cloud ? ir::Location::cloud : ir::Location::nvme;
}

CheckpointCost checkpoint_cost(const PolicyInput& input, const ir::Plan& plan,
                               ir::Location location) {
  const models::ReshardBytes bytes = models::all_state_bytes(input.job);
  std::vector<double> shares(input.cluster.size(), 0);
  if (location == ir::Location::cloud) {
    add_first_holders(input.memory->sizes_of(input, plan, bytes), shares);
  } else {
    const std::vector<DeviceId> devices = ir::devices_of(plan);
    const std::vector<Bytes> all = state_shares(input, plan, bytes);
    for (std::size_t i = 0; i < devices.size(); ++i) shares[devices[i].index()] = all[i].value;
  }
  std::vector<double> of_node(input.cluster.nodes.size(), 0);
  CheckpointCost cost;
  for (const models::Device& device : input.cluster.devices) {
    const Bytes share{shares[device.id.index()]};
    of_node[device.node.index()] += share.value;
    cost.bytes += share;
    if (location != ir::Location::cloud || share.value <= 0) continue;
    cost.uploads.push_back({ir::Location::host_memory, location, device.id, {}, share});
  }
  const std::vector<int> first = first_devices(input.cluster);
  for (std::size_t n = 0; n < of_node.size(); ++n) {
    if (of_node[n] <= 0) continue;
    cost.snapshot =
        std::max(cost.snapshot,
                 Seconds{snapshot_of(input.cluster, input.cluster.nodes[n], first[n], shares)});
  }
  if (location == ir::Location::cloud || location == ir::Location::nvme) {
    cost.persist = {persist_of(input.cluster, of_node, cost.bytes.value, location)};
  }
  return cost;
}

double expected_interruptions(const PolicyInput& input) {
  constexpr double kPerThousandNodeDays = 6.5;  // RSC-1 [Kokolis et al. 2025], unverified.
  constexpr double kDay = 86'400;
  const double before =
      input.interruptions_per_second > 0
          ? input.interruptions_per_second
          : kPerThousandNodeDays / 1000 / kDay * static_cast<double>(input.cluster.nodes.size());
  if (input.seen == nullptr) return before;
  return (1 + static_cast<double>(input.seen->count)) / (1 / before + input.seen->elapsed.value);
}

Seconds young_interval(Seconds cost, double interruptions_per_second) {
  return {std::sqrt(2 * cost.value / interruptions_per_second)};
}

Seconds daly_interval(Seconds cost, double interruptions_per_second) {
  const double between = 1 / interruptions_per_second;
  if (cost.value >= 2 * between) return {between};
  const double ratio = cost.value / (2 * between);
  return {std::sqrt(2 * cost.value * between) * (1 + std::sqrt(ratio) / 3 + ratio / 9) -
          cost.value};
}

Seconds availability_interval(Seconds cost, double interruptions_per_second, Seconds restart) {
  const double between = 1 / interruptions_per_second;
  const double w = cost.value;
  return {w + std::sqrt(2 * (between + restart.value) * w + w * w)};
}

double expected_ettr(double interruptions_per_second, Seconds restart, Seconds interval,
                     Seconds cost) {
  return (1 - interruptions_per_second * (restart.value + interval.value / 2)) /
         (1 + cost.value / interval.value);
}

bool from_scalar(const std::string& text, CheckpointInterval& out, std::string& error) {
  config::TextError unused;
  const std::size_t times = text.find(kTimes);
  for (const auto& [rule, name] : kIntervalRules) {
    if (text.substr(0, times) != name) continue;
    out = {rule, {}};
    if (times == std::string::npos) return true;
    const auto factor = config::parse_number(text.substr(times + 1), unused);
    if (takes_factor(rule) && factor && *factor > 0) {
      out.factor = *factor;
      return true;
    }
  }
  const auto seconds = config::parse_number(text, unused);
  if (seconds && *seconds > 0) {
    out = {IntervalRule::seconds, {*seconds}};
    return true;
  }
  error = fmt::format(
      "'{}' is none of auto, own, young, daly, availability, tuned, no multiple of one of the last "
      "four (young*0.5), and no positive number of seconds",
      text);
  return false;
}

CheckpointInterval chosen(const CheckpointInterval& interval, const CheckpointInterval& own,
                          Constants constants) {
  const bool published = constants == Constants::as_published;
  const bool takes_own =
      interval.rule == IntervalRule::own || (interval.rule == IntervalRule::automatic && published);
  return takes_own ? own : interval;
}

OptionalInterval chosen(const OptionalInterval& interval, const CheckpointInterval& own,
                        Constants constants) {
  if (!interval.interval) return interval;
  return {chosen(*interval.interval, own, constants)};
}

std::string to_scalar(const CheckpointInterval& interval) {
  for (const auto& [rule, name] : kIntervalRules) {
    if (interval.rule != rule) continue;
    if (interval.factor == 1) return name;
    return fmt::format("{}{}{}", name, kTimes, config::format_number(interval.factor));
  }
  return config::format_number(interval.seconds.value);
}

bool from_scalar(const std::string& text, OptionalInterval& out, std::string& error) {
  if (text == kNoCheckpoints) {
    out.interval.reset();
    return true;
  }
  const bool good = from_scalar(text, out.interval.emplace(), error);
  if (!good) error += ", or never";
  return good;
}

std::string to_scalar(const OptionalInterval& interval) {
  return interval.interval ? to_scalar(*interval.interval) : kNoCheckpoints;
}

std::int64_t iterations_between(const CheckpointInterval& interval, const CheckpointTimes& times,
                                Seconds iteration_time, double interruptions_per_second) {
  ORRERY_CHECK(iteration_time.value > 0, "iterations of {} s", iteration_time.value);
  const double rate = interruptions_per_second;
  const auto rounded = [&](Seconds wanted) { return std::round(wanted / iteration_time); };
  const double least =
      std::max(1.0, std::ceil((times.persist - times.stall).value / iteration_time.value - 1e-9));
  double wanted = kMostIterations;  // Nothing ever fails.
  switch (interval.rule) {
    case IntervalRule::seconds:
      wanted = rounded(interval.seconds);
      break;
    case IntervalRule::own:
      ORRERY_CHECK(false, "an interval of the policy's own that it has not named");
      break;
    case IntervalRule::automatic:
    case IntervalRule::young:
      if (rate > 0) wanted = rounded(young_interval(times.stall, rate));
      break;
    case IntervalRule::daly:
      if (rate > 0) wanted = rounded(daly_interval(times.stall, rate));
      break;
    case IntervalRule::availability:
      if (rate > 0) wanted = rounded(availability_interval(times.stall, rate, times.restart));
      break;
    case IntervalRule::tuned:
      if (rate > 0) {
        wanted = tuned_iterations(times.stall, times.restart, iteration_time, rate, least);
      }
      break;
  }
  if (interval.factor != 1 && wanted < kMostIterations) {
    wanted = std::round(interval.factor * wanted);
  }
  return static_cast<std::int64_t>(std::clamp(wanted, least, std::max(least, kMostIterations)));
}

std::vector<models::CheckpointLevel> cloud_checkpoint(const PolicyInput& input,
                                                      const OptionalInterval& interval,
                                                      const ir::Plan& plan, Seconds restart,
                                                      Seconds iteration_time) {
  if (!interval.interval || location_problem(input.cluster, ir::Location::cloud) ||
      iteration_time.value <= 0) {
    return {};
  }
  ir::Plan plain = plan;
  plain.redundancy = ir::Redundancy::none;  // Replicas that shadows keep are not written.
  CheckpointCost cost = checkpoint_cost(input, plain, ir::Location::cloud);
  const CheckpointTimes times{cost.snapshot, cost.snapshot + cost.persist, restart};
  models::CheckpointLevel level;
  level.location = ir::Location::cloud;
  level.stall = to_nanoseconds(times.stall);
  level.persist = to_nanoseconds(times.persist);
  level.every =
      iterations_between(*interval.interval, times, iteration_time, expected_interruptions(input));
  level.source = "option checkpoint_interval = " + to_scalar(interval);
  level.background = std::move(cost.uploads);
  return {level};
}

std::vector<std::pair<ReplicaPlacement, const char*>> enum_names(ReplicaPlacement) {
  return {{ReplicaPlacement::mixed, "mixed"}, {ReplicaPlacement::ring, "ring"}};
}

std::vector<std::vector<int>> replica_nodes(int nodes, int replicas, ReplicaPlacement placement) {
  ORRERY_CHECK(nodes >= 1 && replicas >= 1, "{} replicas on {} nodes", replicas, nodes);
  std::vector<std::vector<int>> out(nodes);
  for (const auto& [first, size] : replica_groups(nodes, replicas, placement)) {
    for (int i = 0; i < size; ++i) {
      for (int r = 0; r < std::min(replicas, size); ++r) {
        out[first + i].push_back(first + (i + r) % size);
      }
    }
  }
  return out;
}

double replica_survival(int nodes, int replicas, int lost, ReplicaPlacement placement) {
  ORRERY_CHECK(nodes >= 1 && replicas >= 1, "{} replicas on {} nodes", replicas, nodes);
  if (lost < 0 || lost > nodes) return 0;
  Ways good = {1};
  for (const auto& [first, size] : replica_groups(nodes, replicas, placement)) {
    good = product(good, ring_ways(size, std::min(replicas, size)));
  }
  const std::size_t k = lost;
  return good[k] / binomial_row(nodes)[k];
}

std::vector<models::CheckpointLevel> in_memory_checkpoints(const PolicyInput& input,
                                                           const ir::Plan& plan,
                                                           Seconds iteration_time,
                                                           const InMemorySettings& settings) {
  const std::vector<DeviceId> devices = ir::devices_of(plan);
  const std::vector<Bytes> shares = state_shares(input, plan, models::all_state_bytes(input.job));
  // The plan's nodes in its own order: one that replaces another takes its place, and the others
  // keep their partners.
  IdVector<NodeId, int> number(input.cluster.nodes.size(), -1);
  int nodes = 0;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const DeviceId device : ir::devices_of(stage)) {
        int& at = number[input.cluster.device(device).node];
        if (at < 0) at = nodes++;
      }
    }
  }
  std::vector<std::vector<DeviceId>> on_node(nodes);  // Ascending.
  for (const DeviceId device : devices) {
    on_node[number[input.cluster.device(device).node]].push_back(device);
  }
  const auto replicas = replica_nodes(nodes, settings.replicas, settings.placement);
  std::vector<NodeTraffic> traffic(on_node.size());
  std::vector<models::CheckpointLevel> levels(replicas.front().size());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const NodeId node = input.cluster.device(devices[i]).node;
    const std::size_t own = number[node];
    const std::vector<DeviceId>& mates = on_node[own];
    const std::size_t rank =
        std::lower_bound(mates.begin(), mates.end(), devices[i]) - mates.begin();
    for (std::size_t r = 0; r < levels.size(); ++r) {
      const std::size_t to = replicas[own][r];
      const DeviceId holder = on_node[to][rank % on_node[to].size()];
      levels[r].stored_on.push_back(holder);
      levels[r].background.push_back(
          {ir::Location::peer, ir::Location::host_memory, devices[i], holder, shares[i]});
      if (to == own) continue;
      traffic[own].sent += shares[i].value;
      traffic[to].received += shares[i].value;
    }
  }
  double network = 0;
  for (const NodeId node : number.ids()) {
    if (number[node] < 0) continue;
    const NodeTraffic& of = traffic[number[node]];
    const double bandwidth = nic_bandwidth(input.cluster, input.cluster.node(node));
    const double most = std::max(of.sent, of.received);
    if (most > 0 && bandwidth > 0) network = std::max(network, most / bandwidth);
  }
  const CheckpointCost copy = checkpoint_cost(input, plan, ir::Location::host_memory);
  const double pcie = copy.snapshot.value * static_cast<double>(levels.size());
  const models::Breakdown breakdown = input.evaluator.evaluate(plan).breakdown;
  const double busy = (breakdown.pipeline + breakdown.data_parallel).value;
  const double idle = settings.idle_share * (iteration_time.value - busy);
  // NICs and PCIe work at the same time; PCIe is idle while GPUs compute.
  const double wanted = std::max(idle > 0 ? network / idle : 0.0, pcie / iteration_time.value);
  std::int64_t every = std::max<std::int64_t>(1, std::llround(std::ceil(wanted - 1e-9)));
  Nanoseconds stall{0};
  Nanoseconds persist = to_nanoseconds(std::max(wanted, 1e-9) * iteration_time);
  std::string why = fmt::format("{:.3g} s of traffic in {:.3g} s of idle network time an iteration",
                                network, idle);
  if (idle <= 0 && network > 0) {
    stall = persist = to_nanoseconds(Seconds{std::max(network, pcie)});
    every = iterations_between({}, {to_seconds(stall), to_seconds(persist), {}}, iteration_time,
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
