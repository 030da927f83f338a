#include "experiments/study/hardware.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "models/config/units.h"
#include "models/spec/ranges.h"

namespace orrery::experiments {
namespace {

constexpr BytesPerSecond kMostBandwidth{1e18};  ///< Of a link; far beyond anything real.

/// Of what the cluster says.
void check_factor(config::Visitor& v, const char* key, double factor) {
  v.between(key, factor, 1 / models::kMostFactor, models::kMostFactor);
}

/// Names that the cluster does not have.
template <class T>
void check_known(const std::map<std::string, config::Located<T>>& named,
                 const std::vector<std::string>& known, const char* noun, const char* nouns,
                 const models::Cluster& cluster, config::Diagnostics& diagnostics) {
  for (const auto& [name, value] : named) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    diagnostics.add(value.at, fmt::format("cluster '{}' has no {} '{}'", cluster.name, noun, name),
                    config::suggest(name, known, nouns));
  }
}

void change_gpus(const HardwareChanges& changes, models::Cluster& cluster,
                 config::Diagnostics& diagnostics) {
  std::vector<std::string> known;
  for (models::GpuType& gpu : cluster.gpu_types) {
    known.push_back(gpu.name);
    const auto own = changes.efficiency.find(gpu.name);
    if (own != changes.efficiency.end()) gpu.efficiency = own->second.value;
    gpu.efficiency = std::min(1.0, gpu.efficiency * changes.scale_efficiency);
    for (auto& [dtype, peak] : gpu.peak) peak = changes.scale_compute * peak;
    const auto price = changes.price.find(gpu.name);
    if (price != changes.price.end()) gpu.price = DollarsPerSecond{price->second.value / 3600};
    const auto power = changes.power.find(gpu.name);
    if (power != changes.power.end()) gpu.power = power->second.value;
  }
  check_known(changes.efficiency, known, "GPU type", "GPU types", cluster, diagnostics);
  check_known(changes.price, known, "GPU type", "GPU types", cluster, diagnostics);
  check_known(changes.power, known, "GPU type", "GPU types", cluster, diagnostics);
}

void change_links(const HardwareChanges& changes, models::Cluster& cluster,
                  config::Diagnostics& diagnostics) {
  std::vector<std::string> known;
  for (auto& [name, link] : cluster.links) {
    known.push_back(name);
    const auto own = changes.link.find(name);
    if (own != changes.link.end()) link.bandwidth = own->second.value;
  }
  check_known(changes.link, known, "link class", "link classes", cluster, diagnostics);
}

void scale_links(const HardwareChanges& changes, models::Cluster& cluster) {
  if (changes.oversubscription) {
    cluster.fabric.leaf_uplink = {};
    cluster.fabric.leaf_oversubscription = *changes.oversubscription;
  }
  std::set<std::string> between;
  for (const models::Node& node : cluster.nodes) {
    for (const models::Nic& nic : node.nics) between.insert(nic.link);
  }
  for (auto& [name, link] : cluster.links) {
    const double scale = between.contains(name) ? changes.scale_network : changes.scale_node;
    link.bandwidth = scale * link.bandwidth;
    link.latency = changes.scale_latency * link.latency;
  }
  cluster.fabric.leaf_uplink = changes.scale_network * cluster.fabric.leaf_uplink;
  cluster.fabric.leaf_latency = changes.scale_latency * cluster.fabric.leaf_latency;
  cluster.fabric.spine_latency = changes.scale_latency * cluster.fabric.spine_latency;
  cluster.fabric.spine_uplink = changes.scale_network * cluster.fabric.spine_uplink;
  cluster.fabric.core_latency = changes.scale_latency * cluster.fabric.core_latency;
  for (models::PairOverride& pair : cluster.overrides) {
    if (pair.bandwidth) pair.bandwidth = changes.scale_network * *pair.bandwidth;
    if (pair.latency) pair.latency = changes.scale_latency * *pair.latency;
  }
  for (models::HostStaging& staging : cluster.host_staging) {
    staging.bandwidth = changes.scale_network * staging.bandwidth;
    staging.latency = changes.scale_latency * staging.latency;
  }
}

/// "31" or "24-31", both ends included, of `count` devices.
std::optional<std::pair<std::int32_t, std::int32_t>> device_range(const std::string& text,
                                                                  std::int64_t count) {
  config::TextError error;
  const std::size_t dash = text.find('-', 1);
  const auto first = config::parse_integer(text.substr(0, dash), 0, count - 1, error);
  const auto last = dash == std::string::npos
                        ? first
                        : config::parse_integer(text.substr(dash + 1), 0, count - 1, error);
  if (!first || !last || *last < *first) return std::nullopt;
  return std::pair(static_cast<std::int32_t>(*first), static_cast<std::int32_t>(*last));
}

}  // namespace

bool HardwareChanges::none() const {
  return efficiency.empty() && scale_efficiency == 1 && scale_compute == 1 && price.empty() &&
         power.empty() && scale_network == 1 && scale_node == 1 && scale_latency == 1 &&
         link.empty() && !oversubscription;
}

void describe(config::Visitor& v, HardwareChanges& changes) {
  v.title("Hardware");
  v.doc("Changes to the cluster: what a paper leaves open, and how far a result moves with it.");
  describe_fields(v, changes);
}

void describe_fields(config::Visitor& v, HardwareChanges& changes) {
  v.optional("efficiency", changes.efficiency, "share of peak that blocks reach, by GPU type");
  v.optional("scale_efficiency", changes.scale_efficiency, "factor for all GPU types, on top");
  v.optional("scale_compute", changes.scale_compute, "factor for the peak rates of all GPU types");
  v.optional("price", changes.price, "dollars per hour and GPU, by GPU type: A100-80GB=1.35");
  if (!v.dumping() || !changes.power.empty()) {
    v.optional("power", changes.power,
               "what the board of a GPU may draw, by GPU type: A100-80GB=\"400 W\"");
  }
  v.optional("scale_network", changes.scale_network, "factor for bandwidths between nodes");
  v.optional("scale_node", changes.scale_node, "factor for bandwidths inside nodes");
  v.optional("scale_latency", changes.scale_latency, "factor for latencies of all links");
  if (!v.dumping() || changes.oversubscription) {
    v.optional("oversubscription", changes.oversubscription,
               "bandwidth of the NICs below each leaf switch over that of its uplink, instead of "
               "the cluster's");
  }
  if (changes.oversubscription) check_factor(v, "oversubscription", *changes.oversubscription);
  v.optional("link", changes.link,
             "bandwidth of a link class (orrery list links): infiniband-200=\"100 Gbps\"");
  v.optional("without", changes.without,
             "nodes or devices that are not used: node_a,3,8-15; a plan that needs them is refused",
             {.commas = true});
  if (!v.dumping() || !changes.at_most.empty()) {
    v.optional("at_most", changes.at_most,
               "most GPUs of a type that are used, by GPU type: A100-80GB=8; a plan that needs "
               "more is refused");
  }
  if (!v.dumping() || changes.any_cluster) {
    v.optional("any_cluster", changes.any_cluster,
               "a plan that was made for other GPUs is carried over to these, node by node, and "
               "what became of what is said");
  }
  for (const auto& [name, value] : changes.at_most) {
    if (v.reading() && value.value < 0) {
      v.problem("at_most", fmt::format("{}: must be at least 0, is {}", name, value.value));
    }
  }
  for (const auto& [name, value] : changes.price) {
    if (v.reading() && !(value.value >= 0 && std::isfinite(value.value))) {
      v.problem("price", fmt::format("{}: must be at least 0, is {}", name, value.value));
    }
  }
  for (const auto& [name, value] : changes.power) {
    if (v.reading() && !(value.value.value > 0)) {
      v.problem("power", fmt::format("{}: must be above 0", name));
    }
  }
  for (const auto& [name, value] : changes.link) {
    if (v.reading() && !(value.value > BytesPerSecond{} && value.value <= kMostBandwidth)) {
      v.problem("link", fmt::format("{}: must be above 0 and at most {}", name,
                                    config::to_text(kMostBandwidth)));
    }
  }
  for (const auto& [name, value] : changes.efficiency) {
    if (v.reading() && !(value.value > 0 && value.value <= 1)) {
      v.problem("efficiency",
                fmt::format("{}: must be above 0 and at most 1, is {}", name, value.value));
    }
  }
  for (const auto& [key, factor] : {std::pair{"scale_efficiency", changes.scale_efficiency},
                                    {"scale_compute", changes.scale_compute},
                                    {"scale_network", changes.scale_network},
                                    {"scale_node", changes.scale_node},
                                    {"scale_latency", changes.scale_latency}}) {
    check_factor(v, key, factor);
  }
}

void apply(const HardwareChanges& changes, models::Cluster& cluster,
           config::Diagnostics& diagnostics) {
  if (changes.none()) return;
  change_gpus(changes, cluster, diagnostics);
  change_links(changes, cluster, diagnostics);
  scale_links(changes, cluster);
  models::seal(cluster);
}

std::set<DeviceId> devices_named(const std::vector<config::Located<std::string>>& listed,
                                 const models::Cluster& cluster, config::Diagnostics& diagnostics) {
  std::set<DeviceId> devices;
  std::vector<std::string> names;
  for (const models::Node& node : cluster.nodes) names.push_back(node.name);
  for (const config::Located<std::string>& one : listed) {
    const auto node = std::find(names.begin(), names.end(), one.value);
    if (node != names.end()) {
      const NodeId id{static_cast<std::int32_t>(node - names.begin())};
      for (const DeviceId device : cluster.devices_of(id)) devices.insert(device);
    } else if (const auto range = device_range(one.value, cluster.size())) {
      for (std::int32_t id = range->first; id <= range->second; ++id) devices.insert(DeviceId{id});
    } else {
      diagnostics.add(one.at,
                      fmt::format("'{}' is neither a node nor a device of '{}', 0 to {}, nor a "
                                  "range of these",
                                  one.value, cluster.name, cluster.size() - 1),
                      config::suggest(one.value, names, "nodes"));
    }
  }
  return devices;
}

std::vector<DeviceId> devices_left(const HardwareChanges& changes, const models::Cluster& cluster,
                                   config::Diagnostics& diagnostics) {
  const std::set<DeviceId> without = devices_named(changes.without, cluster, diagnostics);
  std::vector<std::string> types;
  for (const models::GpuType& gpu : cluster.gpu_types) types.push_back(gpu.name);
  check_known(changes.at_most, types, "GPU type", "GPU types", cluster, diagnostics);
  std::map<std::string, std::int64_t> used;
  std::vector<DeviceId> left;
  for (const models::Device& device : cluster.devices) {
    if (without.contains(device.id)) continue;
    const std::string& type = cluster.gpu(device.id).name;
    const auto most = changes.at_most.find(type);
    if (most != changes.at_most.end() && used[type] >= most->second.value) continue;
    ++used[type];
    left.push_back(device.id);
  }
  if (left.empty()) {
    diagnostics.add(
        changes.without.empty() ? changes.at_most.begin()->second.at : changes.without.front().at,
        "no device is left");
  }
  return left;
}

std::optional<Dollars> cluster_dollars(Dollars used, const models::Cluster& cluster,
                                       const std::vector<DeviceId>& devices) {
  DollarsPerSecond plan_rate, cluster_rate;
  for (const DeviceId device : devices) {
    if (!cluster.gpu(device).price) return std::nullopt;
    plan_rate += *cluster.gpu(device).price;
  }
  for (const models::Device& device : cluster.devices) {
    if (!cluster.gpu(device.id).price) return std::nullopt;
    cluster_rate += *cluster.gpu(device.id).price;
  }
  return used * (cluster_rate / plan_rate);
}

std::string price_source(const HardwareChanges& changes, const std::vector<DeviceId>& devices,
                         const models::Cluster& cluster) {
  std::set<std::string> given;
  bool all = true;
  for (const DeviceId device : devices) {
    const std::string& type = cluster.gpu(device).name;
    if (changes.price.contains(type)) {
      given.insert(type);
    } else {
      all = false;
    }
  }
  if (given.empty()) return "list prices";
  return fmt::format("given for {}{}", fmt::join(given, ", "), all ? "" : ", else list prices");
}

std::string overuse(const HardwareChanges& changes, const std::vector<DeviceId>& used,
                    const models::Cluster& cluster) {
  config::Diagnostics known;  // Names were checked.
  const std::set<DeviceId> without = devices_named(changes.without, cluster, known);
  std::map<std::string, std::int64_t> count;
  for (const DeviceId device : used) {
    if (without.contains(device)) {
      return fmt::format("device {}, which --without leaves out", device.value);
    }
    ++count[cluster.gpu(device).name];
  }
  for (const auto& [type, most] : changes.at_most) {
    if (count[type] <= most.value) continue;
    return fmt::format("{} {}, of which --at-most allows {}", count[type], type, most.value);
  }
  return "";
}

}  // namespace orrery::experiments
