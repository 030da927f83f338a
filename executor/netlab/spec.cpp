#include "executor/netlab/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "models/base/check.h"

namespace orrery::executor {
namespace {

constexpr double kMostLatency = 60;  // s; times are nanoseconds in 64 bits with room for queues
constexpr double kLeastRate = 1e3;   // B/s
constexpr std::size_t kLongestName = 64;

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '.' || c == '-';
         });
}

bool is_rate(BytesPerSecond rate) { return std::isfinite(rate.value) && rate.value >= kLeastRate; }
bool is_latency(Seconds latency) { return latency.value >= 0 && latency.value <= kMostLatency; }

std::string bad_rate(const std::string& of, BytesPerSecond rate) {
  return fmt::format("the rate of {} is {} B/s, at least {} are possible", of, rate.value,
                     kLeastRate);
}
std::string bad_latency(const std::string& of, Seconds latency) {
  return fmt::format("the latency of {} is {} s, 0 to {} are possible", of, latency.value,
                     kMostLatency);
}

void check_node(const NetlabSpec& spec, const NetlabNode& node,
                std::vector<std::string>& problems) {
  const std::string what = fmt::format("node '{}'", node.name);
  if (!is_name(node.name)) {
    problems.push_back(fmt::format(
        "the node name '{}' cannot name a namespace: letters, digits, '_', '.', '-', at most {}",
        node.name, kLongestName));
  }
  if (!is_rate(node.rate)) problems.push_back(bad_rate(what, node.rate));
  if (!is_latency(node.latency)) problems.push_back(bad_latency(what, node.latency));
  if (node.uplink < -1 || node.uplink >= std::ssize(spec.uplinks)) {
    problems.push_back(
        fmt::format("{} has uplink {} of {}", what, node.uplink, spec.uplinks.size()));
  }
  if (node.devices < 1 || !(node.speed > 0) || !std::isfinite(node.speed)) {
    problems.push_back(
        fmt::format("{} has {} devices of speed {}", what, node.devices, node.speed));
  }
}

void check_pair(const NetlabSpec& spec, const NetlabPair& pair,
                std::vector<std::string>& problems) {
  const int size = static_cast<int>(spec.nodes.size());
  const std::string what = fmt::format("pair {}-{}", pair.a, pair.b);
  if (pair.a == pair.b || std::min(pair.a, pair.b) < 0 || std::max(pair.a, pair.b) >= size) {
    problems.push_back(fmt::format("{} is none of {} nodes", what, size));
  }
  if (pair.rate && !is_rate(*pair.rate)) problems.push_back(bad_rate(what, *pair.rate));
  if (pair.latency && !is_latency(*pair.latency)) {
    problems.push_back(bad_latency(what, *pair.latency));
  }
}

template <class T>
void describe_maybe(config::Visitor& v, const char* key, std::optional<T>& quantity) {
  std::optional<double> value;
  if (quantity) value = quantity->value;
  v.required(key, value, "null: that of the ports");
  quantity.reset();
  if (value) quantity = T{*value};
}

}  // namespace

std::vector<std::string> find_problems(const NetlabSpec& spec) {
  std::vector<std::string> problems;
  if (!is_name(spec.name)) {
    problems.push_back(fmt::format(
        "the name '{}' cannot name namespaces: letters, digits, '_', '.', '-', at most {}",
        spec.name, kLongestName));
  }
  if (spec.nodes.empty() || std::ssize(spec.nodes) > kMostNetlabNodes) {
    problems.push_back(
        fmt::format("{} nodes, 1 to {} can be emulated", spec.nodes.size(), kMostNetlabNodes));
  }
  std::set<std::string> names;
  for (const NetlabNode& node : spec.nodes) {
    check_node(spec, node, problems);
    if (!names.insert(node.name).second) {
      problems.push_back(fmt::format("two nodes are named '{}'", node.name));
    }
  }
  std::set<std::pair<int, int>> pairs;
  for (const NetlabPair& pair : spec.pairs) {
    check_pair(spec, pair, problems);
    if (!pairs.insert(std::minmax(pair.a, pair.b)).second) {
      problems.push_back(fmt::format("pair {}-{} is given twice", pair.a, pair.b));
    }
  }
  for (const NetlabUplink& uplink : spec.uplinks) {
    if (!is_rate(uplink.rate)) problems.push_back(bad_rate("an uplink", uplink.rate));
  }
  return problems;
}

std::vector<std::string> find_problems(const NetlabSpec& spec,
                                       const NetlabDisturbance& disturbance) {
  std::vector<std::string> problems;
  for (const auto& [what, share] :
       {std::pair{"loss", disturbance.loss}, {"late", disturbance.late}}) {
    if (share >= 0 && share <= 1) continue;
    problems.push_back(fmt::format("{} is the share {}, 0 to 1 are possible", what, share));
  }
  if (!is_latency(disturbance.lateness)) {
    problems.push_back(bad_latency("late frames", disturbance.lateness));
  }
  const int size = static_cast<int>(spec.nodes.size());
  for (const auto& [from, to] : disturbance.cuts) {
    if (from != to && std::min(from, to) >= 0 && std::max(from, to) < size) continue;
    problems.push_back(fmt::format("{} to {} is no way between {} nodes", from, to, size));
  }
  return problems;
}

std::string namespace_name(const NetlabSpec& spec, int node) {
  return fmt::format("orrery-{}-{}", spec.name, spec.nodes[node].name);
}

std::string netlab_address(int node) {
  static_assert(kMostNetlabNodes < 254);
  return fmt::format("10.77.0.{}", node + 1);
}

Seconds netlab_latency(const NetlabSpec& spec, int a, int b) {
  for (const NetlabPair& pair : spec.pairs) {
    if (std::minmax(pair.a, pair.b) == std::minmax(a, b) && pair.latency) return *pair.latency;
  }
  return spec.nodes[a].latency + spec.nodes[b].latency;
}

double netlab_reserve(double cores) { return std::min(0.5, cores / 4); }

std::vector<double> netlab_slowdowns(const NetlabSpec& spec, double cores) {
  ORRERY_CHECK(cores > 0, "{} cores", cores);
  double fastest = 0, sum = 0;
  for (const NetlabNode& node : spec.nodes) {
    fastest = std::max(fastest, node.speed);
    sum += node.devices * node.speed;
  }
  const double unit = std::min(1 / fastest, (cores - netlab_reserve(cores)) / sum);
  std::vector<double> slowdowns;
  for (const NetlabNode& node : spec.nodes) slowdowns.push_back(1 / (unit * node.speed));
  return slowdowns;
}

static void describe(config::Visitor& v, NetlabNode& node) {
  v.required("name", node.name, "of the node");
  v.required("rate", node.rate.value, "of its port, B/s");
  v.required("latency", node.latency.value, "of its port, s");
  v.required("uplink", node.uplink, "-1: none");
  v.required("devices", node.devices, "that compute on it");
  v.required("speed", node.speed, "of one of them");
}

static void describe(config::Visitor& v, NetlabPair& pair) {
  v.required("a", pair.a, "node");
  v.required("b", pair.b, "node");
  describe_maybe(v, "rate", pair.rate);
  describe_maybe(v, "latency", pair.latency);
}

static void describe(config::Visitor& v, NetlabUplink& uplink) {
  v.required("rate", uplink.rate.value, "B/s");
}

void describe(config::Visitor& v, NetlabSpec& spec) {
  v.required("name", spec.name, "of the lab");
  v.required("nodes", spec.nodes, "emulated");
  v.required("pairs", spec.pairs, "with rates or latencies of their own");
  v.required("uplinks", spec.uplinks, "of leaf switches");
  if (!v.reading() || !v.good()) return;
  for (const std::string& problem : find_problems(spec)) v.problem("", problem);
}

}  // namespace orrery::executor
