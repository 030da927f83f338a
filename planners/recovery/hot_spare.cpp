// Hot spares as ByteRobust and NVRx keep them: some nodes stay out of the plan, warmed up, and take
// the place of a node that is lost. While spares last the plan keeps its shape; after that the job
// shrinks as with checkpoint and restart.
// [ByteRobust, arXiv 2509.16293; NVIDIA Resiliency Extension]
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/checkpointing.h"
#include "planners/recovery/kit/memory_cloud.h"
#include "planners/recovery/kit/spares.h"

namespace orrery::planners {

extern const RecoveryEntry kHotSpareRecovery;

namespace {

std::vector<OptionInfo> options() {
  PhaseDefaults phases;
  phases.detect = {"10",
                   "Seconds until a lost device is noticed where the trace does not say: the "
                   "inspection interval of GPUs [ByteRobust, 4, unverified]."};
  phases.detect_exception = {"10", "As detect, for failed processes [ByteRobust, 4, unverified]."};
  phases.reinitialize = {
      "27.6",
      "Seconds until training goes on with a warm standby: a requeue of 5 min [Kokolis et al. "
      "2025] over 10.87 [ByteRobust, unverified]; derived."};
  phases.restart = kRestart;
  std::vector<OptionInfo> all = checkpointed_options(phases);
  all.push_back({"spares", "auto",
                 "Nodes out of the plan: a number; auto: 4 for each 1,024 nodes, at least one "
                 "[ByteRobust]; p99: the 99th percentile of a binomial over the nodes with "
                 "failures within replace_time."});
  all.push_back({"replace_time", "86400",
                 "Seconds until a lost node is replaced, for p99; one day is assumed."});
  all.push_back({"memory_replicas", "2",
                 "Nodes that hold each share in host memory, the own one included, as often as "
                 "idle network time allows [ByteRobust: every step]; 0: none."});
  all.push_back({"cloud_interval", "tuned",
                 "Between checkpoints to the cloud: never, young, daly, availability, tuned, or "
                 "seconds. Without object storage there are none."});
  return all;
}

struct HotSpareSettings {
  int spares = 1;  ///< Nodes.
  Stall shrink;
};

class HotSpare final : public MemoryCloudPolicy {
 public:
  HotSpare(const PolicyInput& input, MemoryCloudOptions options, HotSpareSettings settings)
      : MemoryCloudPolicy(input, std::move(options.rules), std::move(options.settings)),
        settings_(std::move(settings)) {}
  std::string name() const override { return kHotSpareRecovery.name; }

 protected:
  /// As many nodes as the cluster has without its spares: of the kind that has most nodes there,
  /// those with the highest ids stay out.
  std::vector<DeviceId> planned_on(const std::vector<DeviceId>& usable) const override {
    const models::Cluster& cluster = input().cluster;
    std::vector<NodeId> nodes;
    for (const DeviceId device : usable) {
      const NodeId node = cluster.device(device).node;
      if (nodes.empty() || nodes.back() != node) nodes.push_back(node);
    }
    const auto target = std::max<std::ptrdiff_t>(
        1, static_cast<std::ptrdiff_t>(cluster.nodes.size()) - settings_.spares);
    auto surplus = static_cast<std::ptrdiff_t>(nodes.size()) - target;
    std::map<std::vector<int>, int> kinds;
    for (const NodeId node : nodes) ++kinds[cluster.node(node).gpu_types];
    std::vector<bool> out(cluster.nodes.size(), false);
    for (auto node = nodes.rbegin(); node != nodes.rend() && surplus > 0; ++node) {
      const auto most = std::max_element(kinds.begin(), kinds.end(),
                                         [](auto& a, auto& b) { return a.second < b.second; });
      if (cluster.node(*node).gpu_types != most->first) continue;
      out[node->index()] = true;
      --surplus;
    }
    std::vector<DeviceId> result;
    for (const DeviceId device : usable) {
      if (!out[cluster.device(device).node.index()]) result.push_back(device);
    }
    return result;
  }
  Stall reinitialize(const ir::Plan* running, const ir::Plan& next) const override {
    const bool swapped =
        running != nullptr && ir::devices_of(*running).size() == ir::devices_of(next).size();
    return swapped ? rules().phases.reinitialize : settings_.shrink;
  }

 private:
  HotSpareSettings settings_;
};

/// The option's number of nodes, or nothing for a bad value.
std::optional<int> spares_of(const std::string& text, const PolicyInput& input,
                             Seconds replace_time) {
  const auto nodes = static_cast<int>(input.cluster.nodes.size());
  if (text == "auto") {
    constexpr double kPerNode = 4.0 / 1024;  // [ByteRobust]
    return std::max(1, static_cast<int>(std::ceil(kPerNode * nodes - 1e-9)));
  }
  if (text == "p99") {
    const double rate = expected_interruptions(input) / nodes;
    return binomial_quantile(nodes, 1 - std::exp(-rate * replace_time.value), 0.99);
  }
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::variant<std::unique_ptr<models::RecoveryPolicy>, PlannerEntry::BadOption, models::Infeasible>
make(const PolicyInput& input, const Options& given) {
  OptionReader reader(options(), given);
  HotSpareSettings settings;
  const Seconds replace_time{reader.number("replace_time", 0, 1e9)};
  const std::string spares = reader.text("spares");
  const std::optional<int> count = spares_of(spares, input, replace_time);
  if (!count) {
    return PlannerEntry::BadOption{
        "spares", fmt::format("expected auto, p99 or a number of nodes, not '{}'", spares)};
  }
  settings.spares = *count;
  auto read = read_memory_cloud(reader, options(), "memory_replicas", 0);
  if (auto* bad = std::get_if<PlannerEntry::BadOption>(&read)) return std::move(*bad);
  auto both = std::get<MemoryCloudOptions>(std::move(read));
  const int replicas = both.settings.memory.replicas;
  settings.shrink = both.rules.phases.restart;
  if (settings.spares >= static_cast<int>(input.cluster.nodes.size())) {
    return models::Infeasible{
        "spare nodes", fmt::format("{} spares of {} nodes leave none to train", settings.spares,
                                   input.cluster.nodes.size())};
  }
  if (replicas == 0 && (both.settings.cloud_interval == "never" || !input.cluster.storage)) {
    return models::Infeasible{"checkpoint location",
                              "memory_replicas is 0 and nothing is written to the cloud"};
  }
  both.rules.drops_nodes = true;
  both.rules.save_first = replicas > 0 ? ir::Location::host_memory : ir::Location::cloud;
  both.rules.order = {StateSource::own_host, StateSource::peer_host, StateSource::cloud};
  return std::make_unique<HotSpare>(input, std::move(both), std::move(settings));
}

}  // namespace

const RecoveryEntry kHotSpareRecovery = {
    "hot_spare",
    "ByteRobust (arXiv 2509.16293) and NVIDIA Resiliency Extension",
    "a warm spare node takes the place of a lost one; without spares the job shrinks and restarts",
    "any plan on fewer nodes than there are",
    "iterations since the last checkpoint in host memory, mostly one; the spares' work always",
    "trains on at the pace of the slowest device; with option slowest, changes to a plan without "
    "it",
    "a mixture of ByteRobust and NVRx without over-eviction of a suspect's parallel group, without "
    "a search for silent faults and without restarts inside a process; a spare is warm at once; "
    "copies to peers and uploads to the cloud do not slow iterations unless "
    "background transfers are simulated",
    options,
    make,
};

}  // namespace orrery::planners
