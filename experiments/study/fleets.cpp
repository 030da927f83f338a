#include "experiments/study/fleets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "models/base/check.h"
#include "models/base/text.h"
#include "models/config/units.h"
#include "models/spec/topology.h"
#include "planners/kit/stage_costs.h"
#include "planners/orrery/bound.h"

namespace orrery::experiments {
namespace {

std::string without_spaces(const std::string& text) {
  const auto is_space = [](unsigned char c) { return std::isspace(c) != 0; };
  const auto first = std::find_if_not(text.begin(), text.end(), is_space);
  const auto last = std::find_if_not(text.rbegin(), text.rend(), is_space).base();
  return first < last ? std::string(first, last) : "";
}

/// Bounds ask nobody.
class NobodyJudges final : public models::Evaluator {
 public:
  models::Evaluation evaluate(const ir::Plan&) const override {
    ORRERY_CHECK(false, "a lower bound asked for a simulation");
  }
  std::string name() const override { return "none"; }
};

}  // namespace

RentRange parse_rent(const std::string& text, const models::Cluster& cluster,
                     const config::Position& at, config::Diagnostics& diagnostics) {
  constexpr const char* kHint = "as in \"8..64 of A100, H100\"";
  constexpr std::string_view kOf = " of ";
  RentRange range;
  const std::size_t of = text.find(kOf);
  const std::string numbers = without_spaces(text.substr(0, of));
  const std::size_t dots = numbers.find("..");
  config::TextError error;
  const auto number = [&](const std::string& part) {
    return config::parse_integer(part, 1, cluster.size(), error);
  };
  const auto least = number(numbers.substr(0, dots));
  const auto most = dots == std::string::npos ? least : number(numbers.substr(dots + 2));
  if (!least || !most || *least > *most) {
    diagnostics.add(at, fmt::format("'{}' is no range of 1 to {} GPUs", numbers, cluster.size()),
                    kHint);
    return range;
  }
  range.least = *least;
  range.most = *most;
  if (of == std::string::npos) return range;
  for (const std::string& part : split(text.substr(of + kOf.size()), ',')) {
    const std::string wanted = without_spaces(part);
    bool known = false;
    for (const models::GpuType& gpu : cluster.gpu_types) {
      if (wanted.empty() || !gpu.name.starts_with(wanted)) continue;
      known = true;
      range.types.push_back(gpu.name);
    }
    if (known) continue;
    std::vector<std::string> names;
    for (const models::GpuType& gpu : cluster.gpu_types) names.push_back(gpu.name);
    diagnostics.add(at, fmt::format("cluster '{}' offers no GPU '{}'", cluster.name, wanted),
                    fmt::format("it has {}", fmt::join(names, ", ")));
  }
  return range;
}

std::string node_kind(const models::Cluster& cluster, const models::Node& node) {
  std::map<std::string, int> count;
  for (const int type : node.gpu_types) ++count[cluster.gpu_types[type].name];
  std::vector<std::string> parts;
  for (const auto& [type, number] : count) parts.push_back(fmt::format("{} x {}", number, type));
  return fmt::format("{}", fmt::join(parts, " + "));
}

std::vector<std::pair<std::string, std::vector<NodeId>>> node_kinds(
    const models::Cluster& cluster) {
  std::vector<std::pair<std::string, std::vector<NodeId>>> kinds;
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    const std::string kind = node_kind(cluster, cluster.nodes[n]);
    auto known = std::find_if(kinds.begin(), kinds.end(),
                              [&](const auto& each) { return each.first == kind; });
    if (known == kinds.end()) {
      kinds.push_back({kind, {}});
      known = kinds.end() - 1;
    }
    known->second.push_back(NodeId{static_cast<std::int32_t>(n)});
  }
  return kinds;
}

std::vector<Fleet> fleets(const RentRange& range, const models::Cluster& cluster, bool spot,
                          const config::Position& at, config::Diagnostics& diagnostics) {
  struct Kind {
    std::string name;
    std::vector<NodeId> nodes;
    std::int64_t gpus = 0;
    double price = 0;  ///< Of a node, dollars per second.
  };
  std::vector<Kind> kinds;
  double count = 1;
  for (const auto& [name, nodes] : node_kinds(cluster)) {
    const models::Node& node = cluster.node(nodes.front());
    Kind kind{name, nodes, static_cast<std::int64_t>(node.gpu_types.size()), 0};
    bool wanted = true;
    for (const int type : node.gpu_types) {
      const models::GpuType& gpu = cluster.gpu_types[type];
      wanted &= range.types.empty() ||
                std::find(range.types.begin(), range.types.end(), gpu.name) != range.types.end();
    }
    if (!wanted) continue;
    for (const int type : node.gpu_types) {
      const models::GpuType& gpu = cluster.gpu_types[type];
      const auto price = spot && gpu.spot_price ? gpu.spot_price : gpu.price;
      if (!price) {
        diagnostics.add(at, fmt::format("GPU {} has no price", gpu.name),
                        fmt::format("--price {}=2.50", gpu.name));
        return {};
      }
      kind.price += price->value;
    }
    count *= static_cast<double>(nodes.size() + 1);
    kinds.push_back(std::move(kind));
  }
  if (count > static_cast<double>(kMostFleets)) {
    diagnostics.add(at, fmt::format("{:.3g} fleets, at most {} are looked at", count, kMostFleets),
                    "fewer GPU types");
    return {};
  }
  std::vector<Fleet> all;
  std::vector<std::size_t> take(kinds.size(), 0);
  while (true) {
    Fleet fleet;
    std::vector<std::string> parts;
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      if (take[k] == 0) continue;
      const Kind& kind = kinds[k];
      const auto nodes = static_cast<std::ptrdiff_t>(take[k]);
      fleet.nodes.insert(fleet.nodes.end(), kind.nodes.begin(), kind.nodes.begin() + nodes);
      fleet.gpus += static_cast<std::int64_t>(take[k]) * kind.gpus;
      fleet.price.value += static_cast<double>(take[k]) * kind.price;
      parts.push_back(
          fmt::format("{} {} of {}", take[k], take[k] == 1 ? "node" : "nodes", kind.name));
    }
    fleet.name = fmt::format("{}", fmt::join(parts, " + "));
    std::sort(fleet.nodes.begin(), fleet.nodes.end());
    if (fleet.gpus >= range.least && fleet.gpus <= range.most) all.push_back(std::move(fleet));
    std::size_t next = 0;
    while (next < kinds.size() && take[next] == kinds[next].nodes.size()) take[next++] = 0;
    if (next == kinds.size()) break;
    ++take[next];
  }
  if (all.empty()) {
    diagnostics.add(at, "no number of whole nodes of these types has so many GPUs");
  }
  std::stable_sort(all.begin(), all.end(), [](const Fleet& a, const Fleet& b) {
    return std::pair(a.price.value, a.gpus) < std::pair(b.price.value, b.gpus);
  });
  return all;
}

models::Cluster only_nodes(const models::Cluster& cluster, const std::vector<NodeId>& nodes) {
  models::Cluster out = cluster;
  out.nodes.clear();
  std::map<std::int32_t, std::int32_t> position;
  for (const NodeId node : nodes) {
    position[node.value] = static_cast<std::int32_t>(out.nodes.size());
    out.nodes.push_back(cluster.node(node));
  }
  out.overrides.clear();
  for (models::PairOverride pair : cluster.overrides) {
    const auto a = position.find(pair.a.value);
    const auto b = position.find(pair.b.value);
    if (a == position.end() || b == position.end()) continue;
    pair.a.value = a->second;
    pair.b.value = b->second;
    out.overrides.push_back(pair);
  }
  models::seal(out);
  return out;
}

double most_tokens_per_second(const LoadedRun& run) {
  const models::Topology topology(run.cluster, run.profile);
  const NobodyJudges nobody;
  const planners::PlannerInput input{.cluster = run.cluster,
                                     .topology = topology,
                                     .workload = run.workload,
                                     .job = run.spec.job,
                                     .profile = run.profile,
                                     .evaluator = nobody,
                                     .devices = run.devices};
  const planners::StageCosts costs(input);
  const models::Job& job = run.spec.job;
  const double tokens =
      static_cast<double>(job.global_batch) * static_cast<double>(job.sequence_length);
  return tokens / planners::lower_bound(input, costs).seconds.value;
}

}  // namespace orrery::experiments
