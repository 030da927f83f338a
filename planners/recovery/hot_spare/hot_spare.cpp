// Hot spares as ByteRobust and NVRx keep them: some nodes stay out of the plan, warmed up, and take
// the place of a node that is lost. While spares last the plan keeps its shape; after that the job
// shrinks as with checkpoint and restart.
// [ByteRobust, arXiv 2509.16293; NVIDIA Resiliency Extension]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "models/config/units.h"
#include "planners/recovery/catalog.h"
#include "planners/recovery/hot_spare/spares.h"
#include "planners/recovery/kit/checkpointed.h"

namespace orrery::planners {

extern const RecoveryEntry kHotSpareRecovery;

namespace {

/// How many nodes to keep out of the plan.
struct SpareNodes {
  enum class Rule { by_size, p99, count };
  Rule rule = Rule::by_size;
  int count = 0;  ///< Of the rule `count`.
};

bool from_scalar(const std::string& text, SpareNodes& out, std::string& error) {
  out.rule = text == "auto"  ? SpareNodes::Rule::by_size
             : text == "p99" ? SpareNodes::Rule::p99
                             : SpareNodes::Rule::count;
  if (out.rule != SpareNodes::Rule::count) return true;
  config::TextError unused;
  const auto count = config::parse_integer(text, 0, std::numeric_limits<int>::max(), unused);
  if (count) {
    out.count = static_cast<int>(*count);
  } else {
    error = fmt::format("expected auto, p99 or a number of nodes, not '{}'", text);
  }
  return count.has_value();
}

std::string to_scalar(const SpareNodes& spares) {
  if (spares.rule == SpareNodes::Rule::count) return std::to_string(spares.count);
  return spares.rule == SpareNodes::Rule::p99 ? "p99" : "auto";
}

struct HotSpareSettings {
  CheckpointedSettings checkpointed = {
      .phases = {
          .detect = {{10},
                     "Seconds until a lost device is noticed where the trace does not say: the "
                     "inspection interval of GPUs [ByteRobust, 4, unverified]."},
          .detect_exception = {{10},
                               "As detect, for failed processes [ByteRobust, 4, unverified]."},
          .reinitialize = {{27.6},
                           "Seconds until training goes on with a warm standby: a requeue of 5 min "
                           "[Kokolis et al. 2025] over 10.87 [ByteRobust, unverified]; derived."},
          .restart = kRestart}};
  SpareNodes spares;
  double replace_time = 86'400;
  InMemorySettings memory;
  OptionalInterval cloud_interval;
};

void describe(config::Visitor& v, HotSpareSettings& s) {
  describe_checkpointed(v, s.checkpointed);
  v.optional("spares", s.spares,
             "Nodes out of the plan: a number; auto: 4 for each 1,024 nodes, at least one "
             "[ByteRobust]; p99: the 99th percentile of a binomial over the nodes with "
             "failures within replace_time.");
  v.optional("replace_time", s.replace_time,
             "Seconds until a lost node is replaced, for p99; one day is assumed.");
  v.between("replace_time", s.replace_time, 0.0, 1e9);
  describe_replicas(v, "memory_replicas", s.memory, 0,
                    "Nodes that hold each share in host memory, the own one included, as often as "
                    "idle network time allows [ByteRobust: every step]; 0: none.");
  v.optional("cloud_interval", s.cloud_interval,
             "Between checkpoints to the cloud: auto (Young's), own (tuned), never, young, daly, "
             "availability, tuned, or seconds. Without object storage there are none.");
}

int count_spares(const PolicyInput& input, const HotSpareSettings& s) {
  const auto nodes = static_cast<int>(input.cluster.nodes.size());
  if (s.spares.rule == SpareNodes::Rule::by_size) {
    constexpr double kPerNode = 4.0 / 1024;  // [ByteRobust]
    return std::max(1, static_cast<int>(std::ceil(kPerNode * nodes - 1e-9)));
  }
  if (s.spares.rule == SpareNodes::Rule::count) return s.spares.count;
  const double rate = expected_interruptions(input) / nodes;
  return binomial_quantile(nodes, 1 - std::exp(-rate * s.replace_time), 0.99);
}

class HotSpare final : public MemoryCloudPolicy {
 public:
  using Settings = HotSpareSettings;
  static MadePolicy make(const PolicyInput& input, const Settings& s) {
    const std::size_t nodes = input.cluster.nodes.size();
    const int spares = count_spares(input, s);
    if (spares >= static_cast<int>(nodes)) {
      return models::Infeasible{
          "spare nodes", fmt::format("{} spares of {} nodes leave none to train", spares, nodes)};
    }
    if (s.memory.replicas == 0 && (!s.cloud_interval.interval || !input.cluster.storage)) {
      return models::Infeasible{"checkpoint location",
                                "memory_replicas is 0 and nothing is written to the cloud"};
    }
    return std::make_unique<HotSpare>(input, s, spares);
  }
  HotSpare(const PolicyInput& input, const Settings& s, int spares)
      : MemoryCloudPolicy(
            input, s.checkpointed,
            {.order = {StateSource::own_host, StateSource::peer_host, StateSource::cloud},
             .drops_nodes = true,
             .save_first = s.memory.replicas > 0 ? ir::Location::host_memory : ir::Location::cloud,
             .bring_up = {.warm_spares = true}},
            s.memory, s.cloud_interval, {CheckpointInterval::Rule::tuned, {}}),
        spares_(spares) {}
  std::string name() const override { return kHotSpareRecovery.name; }

 protected:
  /// As many nodes as the cluster has without its spares: one after the other, the node with the
  /// highest id of the kind that has most nodes left stays out.
  std::vector<DeviceId> planned_on(const std::vector<DeviceId>& usable) const override {
    const models::Cluster& cluster = input().cluster;
    std::vector<NodeId> nodes;
    for (const DeviceId device : usable) {
      const NodeId node = cluster.device(device).node;
      if (nodes.empty() || nodes.back() != node) nodes.push_back(node);
    }
    const auto target =
        std::max<std::ptrdiff_t>(1, static_cast<std::ptrdiff_t>(cluster.nodes.size()) - spares_);
    auto surplus = static_cast<std::ptrdiff_t>(nodes.size()) - target;
    std::map<std::vector<int>, int> kinds;
    for (const NodeId node : nodes) ++kinds[cluster.node(node).gpu_types];
    std::vector<bool> out(cluster.nodes.size(), false);
    for (; surplus > 0; --surplus) {
      const auto most = std::max_element(kinds.begin(), kinds.end(),
                                         [](auto& a, auto& b) { return a.second < b.second; });
      const auto node = std::find_if(nodes.rbegin(), nodes.rend(), [&](NodeId id) {
        return !out[id.index()] && cluster.node(id).gpu_types == most->first;
      });
      out[node->index()] = true;
      --most->second;
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
    return swapped ? phases().reinitialize : *phases().restart;
  }

 private:
  int spares_;  ///< Nodes.
};

}  // namespace

constinit const RecoveryEntry kHotSpareRecovery = recovery_entry<HotSpare>({
    .name = "hot_spare",
    .source = "ByteRobust (arXiv 2509.16293) and NVIDIA Resiliency Extension",
    .recovers = "a warm spare node takes the place of a lost one; without spares the job shrinks "
                "and restarts",
    .needs = "any plan on fewer nodes than there are",
    .loses =
        "iterations since the last checkpoint in host memory, mostly one; the spares' work always",
    .slow = kLeavesOutSlowDevices,
    .deviations = "a mixture of ByteRobust and NVRx without over-eviction of a suspect's parallel "
                  "group, without a search for silent faults and without restarts inside a "
                  "process; a spare is warm at once",
});

}  // namespace orrery::planners
