#include "planners/recovery/kit/checkpointing.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "models/base/check.h"
#include "planners/recovery/kit/node_classes.h"
#include "planners/recovery/kit/restore.h"
#include "planners/recovery/kit/state_layouts.h"

namespace orrery::planners {
namespace {

/// Adds to each device, by id, what it writes when of the holders of a slice the one with the
/// lowest id writes it.
void add_first_holders(const StateMemory::Answer& known, std::vector<double>& by_device) {
  for (const StateSizes::Replicas& slice : known.sizes->slices) {
    int writer = std::numeric_limits<int>::max();
    for (const int holder : slice.holders) {
      writer = std::min(writer, known.to[static_cast<std::size_t>(holder)]);
    }
    if (slice.holders.empty()) continue;
    by_device[static_cast<std::size_t>(writer)] += slice.bytes;
  }
}

double bandwidth_of(const models::Cluster& cluster, const std::string& link) {
  const models::LinkClass& of = cluster.links.at(link);
  return of.bandwidth.value * of.efficiency;
}

/// All devices of a node to host memory, beside each other: slots, shared uplinks, host memory.
double snapshot_of(const models::Cluster& cluster, const models::Node& node, int first,
                   const std::vector<double>& bytes) {
  const auto bytes_of = [&](int position) {
    return bytes[static_cast<std::size_t>(first + position)];
  };
  double slowest = 0;
  double total = 0;
  for (int i = 0; i < static_cast<int>(node.gpu_types.size()); ++i) total += bytes_of(i);
  for (const models::PcieSwitch& group : node.pcie) {
    const models::LinkClass& slot = cluster.links.at(group.link);
    double together = 0;
    for (const int member : group.members) {
      const double own = bytes_of(member);
      together += own;
      slowest = std::max(slowest, own / bandwidth_of(cluster, group.link));
    }
    if (slot.shared) slowest = std::max(slowest, together / bandwidth_of(cluster, group.link));
    if (!group.uplink.empty()) {
      slowest = std::max(slowest, together / bandwidth_of(cluster, group.uplink));
    }
  }
  if (node.host_memory_bandwidth.value > 0) {
    slowest = std::max(slowest, total / node.host_memory_bandwidth.value);
  }
  return slowest;
}

double nic_bandwidth(const models::Cluster& cluster, const models::Node& node) {
  double sum = 0;
  for (const models::Nic& nic : node.nics) sum += bandwidth_of(cluster, nic.link);
  return sum;
}

/// Host memory to where the checkpoint lies.
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

std::optional<double> seconds_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good =
      error == std::errc{} && end == text.data() + text.size() && std::isfinite(value) && value > 0;
  return good ? std::optional(value) : std::nullopt;
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

}  // namespace

std::string location_problem(const models::Cluster& cluster, ir::Location location) {
  if (location == ir::Location::cloud && !cluster.storage) {
    return fmt::format("cluster {} has no object storage: key `storage` of its file", cluster.name);
  }
  for (const models::Node& node : cluster.nodes) {
    if (location != ir::Location::nvme) break;
    if (node.nvme_write.value <= 0 || node.nvme_read.value <= 0) {
      return fmt::format("node {} has no NVMe: key `nvme` in the cluster file", node.name);
    }
  }
  return {};
}

CheckpointCost checkpoint_cost(const PolicyInput& input, const ir::Plan& plan,
                               ir::Location location, const models::ReshardBytes& bytes,
                               bool deduplicated) {
  std::vector<double> shares(static_cast<std::size_t>(input.cluster.size()), 0);
  if (deduplicated) {
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
  if (input.interruptions_per_second > 0) return input.interruptions_per_second;
  constexpr double kPerThousandNodeDays = 6.5;  // RSC-1 [Kokolis et al. 2025], unverified.
  constexpr double kDay = 86'400;
  return kPerThousandNodeDays / 1000 / kDay * static_cast<double>(input.cluster.nodes.size());
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

std::string interval_problem(const std::string& interval) {
  for (const char* rule : {"young", "daly", "availability", "tuned"}) {
    if (interval == rule) return {};
  }
  if (seconds_of(interval)) return {};
  return fmt::format(
      "'{}' is none of young, daly, availability, tuned, and no positive number of seconds",
      interval);
}

std::int64_t iterations_between(const std::string& interval, Seconds stall, Seconds persist,
                                Seconds restart, Seconds iteration_time,
                                double interruptions_per_second) {
  ORRERY_CHECK(iteration_time.value > 0, "iterations of {} s", iteration_time.value);
  const double rate = interruptions_per_second;
  const double least =
      std::max(1.0, std::ceil((persist - stall).value / iteration_time.value - 1e-9));
  double wanted = 0;
  if (const auto seconds = seconds_of(interval)) {
    wanted = std::round(*seconds / iteration_time.value);
  } else if (rate <= 0) {
    wanted = kMostIterations;  // Nothing ever fails.
  } else if (interval == "daly") {
    wanted = std::round(daly_interval(stall, rate) / iteration_time);
  } else if (interval == "availability") {
    wanted = std::round(availability_interval(stall, rate, restart) / iteration_time);
  } else if (interval == "tuned") {
    wanted = tuned_iterations(stall, restart, iteration_time, rate, least);
  } else {
    ORRERY_CHECK(interval == "young", "interval {}", interval);
    wanted = std::round(young_interval(stall, rate) / iteration_time);
  }
  return static_cast<std::int64_t>(std::clamp(wanted, least, std::max(least, kMostIterations)));
}

}  // namespace orrery::planners
