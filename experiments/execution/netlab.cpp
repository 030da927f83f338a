#include "experiments/execution/netlab.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "executor/netlab/namespaces.h"
#include "experiments/study/inputs.h"
#include "models/base/subprocess.h"
#include "models/spec/topology.h"

namespace orrery::experiments {
namespace {

/// A dtype that all GPU types have; none if there is no such dtype.
std::optional<ir::Dtype> common_dtype(const models::Cluster& cluster) {
  const auto is_common = [&](ir::Dtype dtype) {
    return std::all_of(cluster.gpu_types.begin(), cluster.gpu_types.end(),
                       [&](const models::GpuType& gpu) { return gpu.peak.contains(dtype); });
  };
  if (is_common(ir::Dtype::fp32)) return ir::Dtype::fp32;
  for (const auto& [dtype, peak] : cluster.gpu_types.front().peak) {
    if (is_common(dtype)) return dtype;
  }
  return std::nullopt;
}

/// The speed of the node's slowest device: its ranks share one factor.
double speed_of(const models::Cluster& cluster, const models::Node& node,
                std::optional<ir::Dtype> dtype) {
  double slowest = 0;
  for (const int type : node.gpu_types) {
    const models::GpuType& gpu = cluster.gpu_types[type];
    const FlopsPerSecond peak = dtype ? gpu.peak.at(*dtype) : gpu.peak.begin()->second;
    const double speed = peak.value * gpu.efficiency;
    slowest = slowest == 0 ? speed : std::min(slowest, speed);
  }
  return slowest;
}

executor::NetlabNode port_of(const models::Cluster& cluster, const models::Node& node) {
  executor::NetlabNode port;
  port.name = node.name;
  port.rate = {};
  Seconds slowest;
  for (const models::Nic& nic : node.nics) {
    const models::LinkClass& link = cluster.links.at(nic.link);
    port.rate += link.bandwidth * link.efficiency;
    slowest = std::max(slowest, link.latency);
  }
  port.latency = 0.5 * (slowest + cluster.fabric.leaf_latency);
  port.devices = static_cast<int>(node.gpu_types.size());
  return port;
}

/// Pairs with an override, and pairs of different leaves where these are further apart.
std::vector<executor::NetlabPair> pairs_of(const models::Cluster& cluster) {
  std::map<std::pair<int, int>, const models::PairOverride*> overrides;  // the last one counts
  for (const models::PairOverride& pair : cluster.overrides) {
    overrides[std::minmax(pair.a.value, pair.b.value)] = &pair;
  }
  std::vector<executor::NetlabPair> pairs;
  const int size = static_cast<int>(cluster.nodes.size());
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      const auto found = overrides.find({a, b});
      const bool apart = cluster.node(NodeId{a}).leaf != cluster.node(NodeId{b}).leaf &&
                         (cluster.fabric.leaf_latency + cluster.fabric.spine_latency).value > 0;
      if (found == overrides.end() && !apart) continue;
      executor::NetlabPair pair{a, b, {}, models::network_latency(cluster, NodeId{a}, NodeId{b})};
      if (found != overrides.end()) {
        pair.rate = found->second->bandwidth;
        // As the simulator does: never less than NICs and fabric take.
        pair.latency = std::max(*pair.latency, found->second->latency.value_or(*pair.latency));
      }
      pairs.push_back(pair);
    }
  }
  return pairs;
}

/// The switch is a process of its own, which main() leads to serve_netlab_switch().
executor::NetlabOptions lab_options() {
  executor::NetlabOptions options;
  options.switch_command = {own_executable(), executor::kNetlabSwitchCommand};
  return options;
}

/// Cores that ranks may use; the switch takes its time from them too.
double cores() { return std::max(1U, std::thread::hardware_concurrency()); }

/// Names of nodes become their numbers.
executor::NetlabDisturbance disturbance_of(const NetlabSettings& settings,
                                           const executor::NetlabSpec& spec,
                                           config::Diagnostics& diagnostics) {
  executor::NetlabDisturbance disturbance = settings.disturbance;
  const auto number_of = [&](const std::string& name) {
    const auto found = std::find_if(spec.nodes.begin(), spec.nodes.end(),
                                    [&](const auto& node) { return node.name == name; });
    return found == spec.nodes.end() ? -1 : static_cast<int>(found - spec.nodes.begin());
  };
  for (const std::string& cut : settings.cuts) {
    const std::size_t colon = cut.find(':');
    const int from = number_of(cut.substr(0, colon));
    const int to = colon == std::string::npos ? -1 : number_of(cut.substr(colon + 1));
    if (from >= 0 && to >= 0 && from != to) {
      disturbance.cuts.emplace_back(from, to);
    } else {
      diagnostics.add(at_setting("cut"),
                      fmt::format("'{}' is not FROM:TO of two nodes of {}", cut, spec.name));
    }
  }
  return disturbance;
}

std::string state_of(const executor::NetlabStatus& status) {
  const auto is_there = [](const auto& port) { return port.present; };
  const bool all = std::all_of(status.ports.begin(), status.ports.end(), is_there);
  if (status.up() && !status.same) return "up with other settings";
  if (status.up() && all) return "up";
  const bool some = std::any_of(status.ports.begin(), status.ports.end(), is_there);
  return status.known || some ? "broken" : "down";
}

}  // namespace

std::vector<std::pair<NetlabAction, const char*>> enum_names(NetlabAction) {
  return {{NetlabAction::up, "up"},
          {NetlabAction::down, "down"},
          {NetlabAction::status, "status"},
          {NetlabAction::disturb, "disturb"}};
}

void describe(config::Visitor& v, NetlabSettings& settings) {
  executor::NetlabDisturbance& disturbance = settings.disturbance;
  v.required("action", settings.action, "up, down, status or disturb", {.positional = true});
  v.required("cluster", settings.cluster, "cluster of the library, or a YAML file",
             {.positional = true});
  v.section("Disturb");
  v.optional("loss", disturbance.loss, "share of the frames that are lost; default: 0");
  v.optional("late", disturbance.late,
             "share of the frames that are held back, so that others overtake them; default: 0");
  v.optional("lateness", disturbance.lateness, "how long they are held back; default: 10 ms");
  v.optional("cut", settings.cuts,
             "FROM:TO: what one node sends to the other does not arrive; may be repeated");
  v.between("loss", disturbance.loss, 0.0, 1.0);
  v.between("late", disturbance.late, 0.0, 1.0);
  if (!v.reading() || settings.action == NetlabAction::disturb) return;
  for (const char* key : {"loss", "late", "lateness", "cut"}) {
    if (v.given(key)) v.problem(key, "belongs to disturb");
  }
}

void describe(config::Visitor& v, LabNode& node) {
  auto processes = static_cast<std::int64_t>(node.port.processes.size());
  v.required("node", node.node.name, "");
  v.required("namespace", node.network_namespace, "");
  v.required("address", node.address, "");
  v.required("bytes_per_second", node.node.rate, "");
  v.required("latency_seconds", node.node.latency, "");
  v.required("devices", node.node.devices, "");
  v.required("slowdown", node.slowdown, "");
  v.required("present", node.port.present, "");
  v.required("sent_bytes", node.port.sent_bytes, "");
  v.required("received_bytes", node.port.received_bytes, "");
  v.required("dropped_frames", node.port.dropped, "");
  v.required("refused_frames", node.port.refused, "");
  v.required("lost_frames", node.port.lost, "");
  v.required("processes", processes, "");
}

static void describe_disturbance(config::Visitor& v, LabReport& report) {
  executor::NetlabDisturbance& told = report.status.disturbance;
  std::vector<std::string> cuts;
  for (const auto& [from, to] : told.cuts) {
    cuts.push_back(fmt::format("{}:{}", report.spec.nodes[from].name, report.spec.nodes[to].name));
  }
  v.required("loss", told.loss, "");
  v.required("late", told.late, "");
  v.required("lateness_seconds", told.lateness, "");
  v.required("cuts", cuts, "");
}

void describe(config::Visitor& v, LabReport& report) {
  v.required("name", report.spec.name, "");
  v.required("state", report.state, "");
  v.required("switch_pid", report.status.switch_pid, "");
  v.required("real_time", report.status.real_time, "");
  v.required("late_frames", report.status.late_frames, "");
  v.required("worst_late_seconds", report.status.worst_late_seconds, "");
  describe_disturbance(v, report);
  v.required("nodes", report.nodes, "");
  v.required("differences", report.differences, "");
}

void describe(config::Visitor& v, NetlabResult& result) {
  std::visit([&v](auto& is) { describe(v, is); }, result.is);
}

NetlabResult netlab(const NetlabSettings& settings, const Call&) {
  config::Diagnostics diagnostics;
  const models::Library library = open_library(diagnostics);
  models::Cluster cluster =
      models::load_cluster(settings.cluster, library, {"cluster", 0, 0}, diagnostics);
  diagnostics.raise();
  if (cluster.name.empty()) cluster.name = std::filesystem::path(settings.cluster).stem();
  LabReport report;
  report.spec = netlab_of(cluster);
  for (const std::string& problem : executor::find_problems(report.spec)) {
    diagnostics.add({settings.cluster, 0, 0}, problem);
  }
  const executor::NetlabDisturbance disturbance =
      disturbance_of(settings, report.spec, diagnostics);
  diagnostics.raise();
  const executor::NetlabOptions options = lab_options();
  if (settings.action == NetlabAction::down) return {executor::netlab_down(report.spec, options)};
  if (settings.action == NetlabAction::up) executor::netlab_up(report.spec, options);
  if (settings.action == NetlabAction::disturb) {
    executor::netlab_disturb(report.spec, disturbance, options);
  }
  report.status = executor::netlab_status(report.spec, options);
  report.state = state_of(report.status);
  report.differences = netlab_differences(cluster);
  const std::vector<double> slowdowns = executor::netlab_slowdowns(report.spec, cores());
  for (std::size_t i = 0; i < report.spec.nodes.size(); ++i) {
    const int number = static_cast<int>(i);
    report.nodes.push_back({report.spec.nodes[i], executor::namespace_name(report.spec, number),
                            executor::netlab_address(number), slowdowns[i],
                            report.status.ports[i]});
  }
  return {std::move(report)};
}

executor::NetlabSpec netlab_of(const models::Cluster& cluster) {
  executor::NetlabSpec spec;
  spec.name = cluster.name;
  std::map<int, BytesPerSecond> leaves;  // Bandwidth of the NICs below.
  for (const models::Node& node : cluster.nodes) leaves[node.leaf] += port_of(cluster, node).rate;
  const models::Fabric& fabric = cluster.fabric;
  const bool limited = leaves.size() > 1 && fabric.limits_leaves();
  for (const auto& [leaf, below] : leaves) {
    if (!limited) break;
    const bool given = fabric.leaf_uplink.value > 0;
    spec.uplinks.push_back(
        {given ? fabric.rails * fabric.leaf_uplink : below / fabric.leaf_oversubscription});
  }
  const std::optional<ir::Dtype> dtype = common_dtype(cluster);
  for (const models::Node& node : cluster.nodes) {
    executor::NetlabNode port = port_of(cluster, node);
    port.speed = speed_of(cluster, node, dtype);
    if (limited) {
      port.uplink = static_cast<int>(std::distance(leaves.begin(), leaves.find(node.leaf)));
    }
    spec.nodes.push_back(port);
  }
  spec.pairs = pairs_of(cluster);
  return spec;
}

std::vector<std::string> netlab_differences(const models::Cluster& cluster) {
  std::vector<std::string> differences;
  for (const models::Node& node : cluster.nodes) {
    if (node.nics.size() > 1) {
      differences.push_back(fmt::format("node '{}': its {} NICs are one port of their sum",
                                        node.name, node.nics.size()));
    }
    if (node.gpu_types.size() > 1) {
      differences.push_back(
          fmt::format("node '{}': links between its {} devices are this machine's own", node.name,
                      node.gpu_types.size()));
    }
    const std::set<int> types(node.gpu_types.begin(), node.gpu_types.end());
    if (types.size() > 1) {
      differences.push_back(
          fmt::format("node '{}': all its devices are as slow as its slowest", node.name));
    }
  }
  if (cluster.fabric.rails > 1) {
    differences.push_back(
        fmt::format("the {} switches of a leaf are one of their sum", cluster.fabric.rails));
  }
  if (cluster.fabric.leaves_per_pod > 0 && cluster.fabric.limits_pods()) {
    differences.emplace_back("the uplinks of pods have no limit");
  }
  if (!cluster.host_staging.empty()) {
    differences.emplace_back("host staging between vendors is not emulated");
  }
  return differences;
}

executor::NetlabSpec netlab_for_run(const models::Cluster& cluster,
                                    config::Diagnostics& diagnostics) {
  executor::NetlabSpec spec = netlab_of(cluster);
  if (spec.name.empty()) spec.name = "cluster";
  for (const std::string& problem : executor::find_problems(spec)) {
    diagnostics.add(at_setting("netlab"), problem);
  }
  return spec;
}

std::map<std::int32_t, double> lab_slowdowns(const executor::NetlabSpec& spec) {
  const std::vector<double> by_node = executor::netlab_slowdowns(spec, cores());
  std::map<std::int32_t, double> out;
  std::int32_t device = 0;
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    for (int d = 0; d < spec.nodes[i].devices; ++d) out[device++] = by_node[i];
  }
  return out;
}

ClusterLab::ClusterLab(executor::NetlabSpec spec, std::function<void(const std::string&)> say)
    : spec_(std::move(spec)), say_(std::move(say)) {
  created_ = executor::netlab_up(spec_, lab_options()) == executor::NetlabUp::created;
  say_(fmt::format("lab {}: {} nodes {}", spec_.name, spec_.nodes.size(),
                   created_ ? "set up" : "that were up, and will stay"));
}

ClusterLab::~ClusterLab() {
  if (!created_) return;
  try {
    const executor::NetlabDown down = executor::netlab_down(spec_, lab_options());
    say_(fmt::format("lab {}: removed", spec_.name));
    if (!down.processes.empty()) {
      say_(fmt::format("still run, without a network: {}", fmt::join(down.processes, ", ")));
    }
  } catch (const std::exception& error) {
    try {
      say_(fmt::format("lab {}: {}", spec_.name, error.what()));
    } catch (const std::exception&) {
      // Nobody listens: standard error is closed.
    }
  }
}

std::vector<executor::HostSlots> ClusterLab::hosts() const {
  std::vector<executor::HostSlots> out;
  for (std::size_t i = 0; i < spec_.nodes.size(); ++i) {
    const int node = static_cast<int>(i);
    out.push_back({spec_.nodes[i].name,
                   spec_.nodes[i].devices,
                   {"--address", executor::netlab_address(node), "--namespace",
                    executor::namespace_name(spec_, node)}});
  }
  return out;
}

executor::LaunchReport ClusterLab::launch(executor::LaunchOptions options) const {
  options.listen = executor::netlab_address(0);
  executor::LaunchReport report;
  std::exception_ptr error;
  // A thread enters a namespace for itself and the threads that it starts; the others stay.
  std::thread([&] {
    try {
      executor::enter_namespace(executor::namespace_name(spec_, 0));
      report = executor::launch(std::move(options));
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return report;
}

}  // namespace orrery::experiments
