/// orrery netlab: the nodes of a cluster as network namespaces on this machine, and what happens in
/// them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "executor/netlab/lab.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/inputs.h"
#include "tools/commands/netlab_cluster.h"

namespace orrery::tools {
namespace {

/// Emulated nodes on this machine.
struct NetlabSettings {
  std::string action;   ///< up, down, status; switch: the process that carries frames.
  std::string cluster;  ///< Of switch: the path of the lab's state.
  bool json = false;
};

void describe(config::Visitor& v, NetlabSettings& settings) {
  v.required("action", settings.action, "up, down or status", {.positional = true});
  v.required("cluster", settings.cluster, "cluster of the library, or a YAML file",
             {.positional = true});
  describe_json(v, settings.json);
}

using executor::NetlabSpec;
using executor::NetlabStatus;

struct NodeRecord {
  std::string node;
  std::string network_namespace;
  std::string address;
  double bytes_per_second = 0;
  double latency_seconds = 0;
  int devices = 0;
  double slowdown = 0;
  bool present = false;
  std::int64_t sent_bytes = 0;
  std::int64_t received_bytes = 0;
  std::int64_t dropped_frames = 0;
  std::int64_t refused_frames = 0;
  int processes = 0;
};

struct LabRecord {
  std::string name;
  std::string state;  ///< up, down, broken
  int switch_pid = 0;
  bool real_time = false;
  std::int64_t late_frames = 0;
  double worst_late_seconds = 0;
  std::vector<NodeRecord> nodes;
  std::vector<std::string> differences;
};

struct DownRecord {
  std::string name;
  bool switch_ran = false;
  std::vector<std::string> removed;
  std::vector<int> processes;
};

void describe(config::Visitor& v, NodeRecord& record) {
  v.required("node", record.node, "");
  v.required("namespace", record.network_namespace, "");
  v.required("address", record.address, "");
  v.required("bytes_per_second", record.bytes_per_second, "");
  v.required("latency_seconds", record.latency_seconds, "");
  v.required("devices", record.devices, "");
  v.required("slowdown", record.slowdown, "");
  v.required("present", record.present, "");
  v.required("sent_bytes", record.sent_bytes, "");
  v.required("received_bytes", record.received_bytes, "");
  v.required("dropped_frames", record.dropped_frames, "");
  v.required("refused_frames", record.refused_frames, "");
  v.required("processes", record.processes, "");
}

void describe(config::Visitor& v, LabRecord& record) {
  v.required("name", record.name, "");
  v.required("state", record.state, "");
  v.required("switch_pid", record.switch_pid, "");
  v.required("real_time", record.real_time, "");
  v.required("late_frames", record.late_frames, "");
  v.required("worst_late_seconds", record.worst_late_seconds, "");
  v.required("nodes", record.nodes, "");
  v.required("differences", record.differences, "");
}

void describe(config::Visitor& v, DownRecord& record) {
  v.required("name", record.name, "");
  v.required("switch_ran", record.switch_ran, "");
  v.required("removed", record.removed, "");
  v.required("processes", record.processes, "");
}

/// Cores that ranks may use; the switch takes its time from them too.
double cores() { return std::max(1U, std::thread::hardware_concurrency()); }

std::string state_of(const NetlabStatus& status) {
  const auto is_there = [](const auto& port) { return port.present; };
  const bool all = std::all_of(status.ports.begin(), status.ports.end(), is_there);
  if (status.up() && !status.same) return "up with other settings";
  if (status.up() && all) return "up";
  const bool some = std::any_of(status.ports.begin(), status.ports.end(), is_there);
  return status.known || some ? "broken" : "down";
}

LabRecord record_of(const NetlabSpec& spec, const NetlabStatus& status,
                    const models::Cluster& cluster) {
  LabRecord record{spec.name,
                   state_of(status),
                   status.switch_pid,
                   status.real_time,
                   status.late_frames,
                   status.worst_late_seconds,
                   {},
                   netlab_differences(cluster)};
  const std::vector<double> slowdowns = executor::netlab_slowdowns(spec, cores());
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const executor::NetlabNode& node = spec.nodes[i];
    const executor::NetlabPortStatus& port = status.ports[i];
    const int number = static_cast<int>(i);
    record.nodes.push_back({node.name, executor::namespace_name(spec, number),
                            executor::netlab_address(number), node.rate.value, node.latency.value,
                            node.devices, slowdowns[i], port.present, port.sent_bytes,
                            port.received_bytes, port.dropped, port.refused,
                            static_cast<int>(port.processes.size())});
  }
  return record;
}

std::string rate_cell(double bytes_per_second) {
  return grouped(8e-6 * bytes_per_second, bytes_per_second < 12.5e6 ? 2 : 0);
}

std::string nodes_table(const LabRecord& record) {
  Table table;
  table.column("node").column("address").number("Mbit/s").number("latency ms").number("devices");
  table.number("slowdown").number("sent MB").number("received MB").number("dropped");
  table.number("processes");
  for (const NodeRecord& node : record.nodes) {
    table.row({node.node, node.address, rate_cell(node.bytes_per_second),
               grouped(1e3 * node.latency_seconds, 3), fmt::format("{}", node.devices),
               grouped(node.slowdown, 2), grouped(1e-6 * static_cast<double>(node.sent_bytes), 1),
               grouped(1e-6 * static_cast<double>(node.received_bytes), 1),
               fmt::format("{}", node.dropped_frames + node.refused_frames),
               fmt::format("{}", node.processes)});
  }
  return table.text(2, colors());
}

std::string pairs_table(const NetlabSpec& spec) {
  if (spec.pairs.empty()) return "";
  Table table;
  table.column("pair").number("Mbit/s").number("latency ms");
  for (const executor::NetlabPair& pair : spec.pairs) {
    table.row({fmt::format("{} - {}", spec.nodes[static_cast<std::size_t>(pair.a)].name,
                           spec.nodes[static_cast<std::size_t>(pair.b)].name),
               pair.rate ? rate_cell(pair.rate->value) : "-",
               grouped(1e3 * executor::netlab_latency(spec, pair.a, pair.b).value, 3)});
  }
  return section("Pairs of their own", table.text(2, colors()));
}

std::string hosts_of(const NetlabSpec& spec) {
  std::string hosts;
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    hosts += fmt::format("{}{}:{}", i == 0 ? "" : ",",
                         executor::netlab_address(static_cast<int>(i)), spec.nodes[i].devices);
  }
  return hosts;
}

std::string lab_text(const NetlabSpec& spec, const LabRecord& record) {
  std::string text = fmt::format("Lab {}: {}", record.name, record.state);
  if (record.switch_pid > 0) {
    text += fmt::format(", switch is process {}{}", record.switch_pid,
                        record.real_time ? " (real-time priority)" : " (ordinary priority)");
  }
  text += '\n';
  text += nodes_table(record) + pairs_table(spec);
  if (record.late_frames > 0) {
    text += fmt::format(
        "{} frames came more than 1 ms late, the worst {:.1f} ms: the machine was busy.\n",
        record.late_frames, 1e3 * record.worst_late_seconds);
  }
  for (const std::string& difference : record.differences) {
    text += fmt::format("Not as simulated: {}.\n", difference);
  }
  if (record.state == "up") {
    text += fmt::format("Run in a node: ip netns exec {} COMMAND\nAll nodes: --hosts {}\n",
                        executor::namespace_name(spec, 0), hosts_of(spec));
  }
  if (record.state == "broken")
    text += "A part of it is gone: `orrery netlab up` makes it anew, `down` removes the rest.\n";
  return text;
}

std::string down_text(const DownRecord& record) {
  if (!record.switch_ran && record.removed.empty()) {
    return fmt::format("Lab {}: nothing was there\n", record.name);
  }
  std::string text = fmt::format("Lab {}: removed {}{}\n", record.name,
                                 counted(record.removed.size(), "namespace"),
                                 record.switch_ran ? " and the switch" : "");
  if (!record.processes.empty()) {
    text += fmt::format("Still run, without a network: {}\n", fmt::join(record.processes, ", "));
  }
  return text;
}

/// Lab of the cluster; all problems of both are reported at the cluster.
NetlabSpec load_lab(const std::string& name, models::Cluster& cluster) {
  config::Diagnostics diagnostics;
  const models::Library library = open_library(diagnostics);
  cluster = models::load_cluster(name, library, at_flag("cluster"), diagnostics);
  diagnostics.raise();
  if (cluster.name.empty()) cluster.name = std::filesystem::path(name).stem();
  const NetlabSpec spec = netlab_of(cluster);
  for (const std::string& problem : executor::find_problems(spec)) {
    diagnostics.add({name, 0, 0}, problem);
  }
  diagnostics.raise();
  return spec;
}

int take_down(const NetlabSpec& spec, const executor::NetlabOptions& options, bool json) {
  executor::NetlabDown down = executor::netlab_down(spec, options);
  const DownRecord record{spec.name, down.switch_ran, down.removed, down.processes};
  print(json ? to_json(record) : down_text(record));
  return 0;
}

}  // namespace

namespace {

int run(const NetlabSettings& args) {
  if (args.action == "switch") return executor::serve_netlab_switch(args.cluster);
  const std::vector<std::string> actions{"up", "down", "status"};
  if (std::find(actions.begin(), actions.end(), args.action) == actions.end()) {
    config::Diagnostics diagnostics;
    diagnostics.add(at_flag("action"), fmt::format("unknown action '{}'", args.action),
                    config::suggest(args.action, actions, "actions"));
    diagnostics.raise();
  }
  models::Cluster cluster;
  const NetlabSpec spec = load_lab(args.cluster, cluster);
  executor::NetlabOptions options;
  options.switch_command = {std::filesystem::read_symlink("/proc/self/exe"), "netlab", "switch"};
  if (args.action == "down") return take_down(spec, options, args.json);
  if (args.action == "up") executor::netlab_up(spec, options);
  const LabRecord record = record_of(spec, executor::netlab_status(spec, options), cluster);
  print(args.json ? to_json(record) : lab_text(spec, record));
  return 0;
}

}  // namespace

extern const Command kNetlab;
const Command kNetlab = printing_command<NetlabSettings, run>(
    "netlab", "Emulate the nodes of a cluster and their network on this machine",
    "netlab status experiments/executor/netlab_4.yaml",
    "up sets the nodes up as network namespaces that a switch joins, with the rates and latencies "
    "of the cluster; down removes them; status says what runs and what was dropped.");

}  // namespace orrery::tools
