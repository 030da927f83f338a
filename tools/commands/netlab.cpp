/// orrery netlab: the nodes of a cluster as network namespaces on this machine, and what happens in
/// them.
#include "experiments/execution/netlab.h"

#include <fmt/format.h>

#include <string>
#include <variant>

#include "models/base/text.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"

namespace orrery::tools {
namespace {

using executor::NetlabDown;
using executor::NetlabSpec;
using experiments::LabReport;
using experiments::NetlabResult;

std::string rate_cell(double bytes_per_second) {
  return grouped(8e-6 * bytes_per_second, bytes_per_second < 12.5e6 ? 2 : 0);
}

std::string nodes_table(const LabReport& report) {
  Table table;
  table.column("node").column("address").number("Mbit/s").number("latency ms").number("devices");
  table.number("slowdown").number("sent MB").number("received MB").number("dropped");
  table.number("processes");
  for (const experiments::LabNode& node : report.nodes) {
    table.row({node.node.name, node.address, rate_cell(node.node.rate.value),
               grouped(1e3 * node.node.latency.value, 3), fmt::format("{}", node.node.devices),
               grouped(node.slowdown, 2),
               grouped(1e-6 * static_cast<double>(node.port.sent_bytes), 1),
               grouped(1e-6 * static_cast<double>(node.port.received_bytes), 1),
               fmt::format("{}", node.port.dropped + node.port.refused),
               fmt::format("{}", node.port.processes.size())});
  }
  return table.text(2, colors());
}

std::string pairs_table(const NetlabSpec& spec) {
  if (spec.pairs.empty()) return "";
  Table table;
  table.column("pair").number("Mbit/s").number("latency ms");
  for (const executor::NetlabPair& pair : spec.pairs) {
    table.row({fmt::format("{} - {}", spec.nodes[pair.a].name, spec.nodes[pair.b].name),
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

/// What `disturb` told the switch; empty: nothing.
std::string disturbance_text(const LabReport& report) {
  const executor::NetlabDisturbance& told = report.status.disturbance;
  std::vector<std::string> parts;
  if (told.loss > 0) parts.push_back(fmt::format("{} of the frames are lost", percent(told.loss)));
  if (told.late > 0) {
    parts.push_back(fmt::format("{} come {} ms late", percent(told.late),
                                grouped(1e3 * told.lateness.value, 1)));
  }
  for (const auto& [from, to] : told.cuts) {
    parts.push_back(fmt::format("nothing that {} sends comes to {}", report.spec.nodes[from].name,
                                report.spec.nodes[to].name));
  }
  std::int64_t lost = 0;
  for (const experiments::LabNode& node : report.nodes) lost += node.port.lost;
  if (parts.empty() && lost == 0) return "";
  return fmt::format("Disturbed: {}; {} frames were lost so far.\n",
                     parts.empty() ? "not now" : fmt::format("{}", fmt::join(parts, ", ")), lost);
}

std::string lab_text(const LabReport& report) {
  const NetlabSpec& spec = report.spec;
  std::string text = fmt::format("Lab {}: {}", spec.name, report.state);
  if (report.status.switch_pid > 0) {
    text += fmt::format(", switch is process {}{}", report.status.switch_pid,
                        report.status.real_time ? " (real-time priority)" : " (ordinary priority)");
  }
  text += '\n';
  text += nodes_table(report) + pairs_table(spec);
  if (report.status.late_frames > 0) {
    text += fmt::format(
        "{} frames came more than 1 ms late, the worst {:.1f} ms: the machine was busy.\n",
        report.status.late_frames, 1e3 * report.status.worst_late_seconds);
  }
  text += disturbance_text(report);
  for (const std::string& difference : report.differences) {
    text += fmt::format("Not as simulated: {}.\n", difference);
  }
  if (report.state == "up") {
    text += fmt::format("Run in a node: ip netns exec {} COMMAND\nAll nodes: --hosts {}\n",
                        executor::namespace_name(spec, 0), hosts_of(spec));
  }
  if (report.state == "broken")
    text += "A part of it is gone: `orrery netlab up` makes it anew, `down` removes the rest.\n";
  return text;
}

std::string down_text(const NetlabDown& down) {
  if (!down.switch_ran && down.removed.empty()) {
    return fmt::format("Lab {}: nothing was there\n", down.name);
  }
  std::string text =
      fmt::format("Lab {}: removed {}{}\n", down.name, counted(down.removed.size(), "namespace"),
                  down.switch_ran ? " and the switch" : "");
  if (!down.processes.empty()) {
    text += fmt::format("Still run, without a network: {}\n", fmt::join(down.processes, ", "));
  }
  return text;
}

void print_netlab(const NetlabResult& result, const experiments::NetlabSettings&) {
  const auto* down = std::get_if<NetlabDown>(&result.is);
  print(down != nullptr ? down_text(*down) : lab_text(std::get<LabReport>(result.is)));
}

}  // namespace

extern const Command kNetlab;
const Command kNetlab = command<experiments::netlab, print_netlab>(
    "netlab", "Emulate the nodes of a cluster and their network on this machine",
    "netlab status experiments/executor/netlab_4.yaml",
    "up sets the nodes up as network namespaces that a switch joins, with the rates and latencies "
    "of the cluster; down removes them; status says what runs and what was dropped. disturb loses, "
    "holds back and cuts off frames of a lab that is up, from then on as its flags say; without "
    "any it stops that.");

}  // namespace orrery::tools
