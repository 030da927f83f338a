/// orrery switch: what moves when training goes from one plan to another.
#include "experiments/study/switch.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/ir/names.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

using experiments::SwitchResult;
using models::PathClass;

constexpr double kSwitchMebibyte = 1024.0 * 1024;
constexpr std::size_t kLostShown = 24;

std::string mebibytes(Bytes bytes) { return grouped(bytes.value / kSwitchMebibyte, 1); }

std::string traffic_table(const SwitchResult& result) {
  const bool staged = result.moved[PathClass::host_staged].value > 0;
  Table table;
  table.column("sender").column("node").number("NVLink MiB").number("PCIe MiB");
  table.number("network MiB");
  if (staged) table.number("through hosts MiB");
  table.number("messages").number("received MiB").number("kept MiB");
  const auto row = [&](std::string name, std::string node, const models::ClassVolumes& sent,
                       std::int64_t messages, Bytes received, Bytes kept) {
    std::vector<std::string> cells = {std::move(name), std::move(node)};
    for (const PathClass path : {PathClass::nvlink, PathClass::pcie, PathClass::network}) {
      cells.push_back(mebibytes(sent[path]));
    }
    if (staged) cells.push_back(mebibytes(sent[PathClass::host_staged]));
    cells.push_back(grouped(static_cast<double>(messages), 0));
    cells.push_back(mebibytes(received));
    cells.push_back(mebibytes(kept));
    table.row(std::move(cells));
  };
  for (const experiments::SwitchedDevice& device : result.devices) {
    const models::DeviceTraffic& traffic = device.traffic;
    if (traffic.messages_sent + traffic.messages_received == 0) continue;
    row(std::to_string(traffic.device.value), device.node, traffic.sent, traffic.messages_sent,
        models::sum(traffic.received), traffic.kept);
  }
  row("all", "", result.moved, result.messages, models::sum(result.moved), result.kept);
  return table.text(0, colors());
}

/// "whole", "3 of 40" or "0-9 of 40".
std::string slice_text(const experiments::LostSlice& lost) {
  if (lost.length == 1) return "whole";
  if (lost.end - lost.begin == 1) return fmt::format("{} of {}", lost.begin, lost.length);
  return fmt::format("{}-{} of {}", lost.begin, lost.end - 1, lost.length);
}

std::string lost_text(const SwitchResult& result) {
  if (result.lost.empty()) {
    return "lost state: none, every slice that is needed lives on some device\n";
  }
  Table table;
  table.column("blocks").column("parameter").column("slice").column("states").number("MiB");
  table.column("only on lost").column("needed by");
  for (std::size_t i = 0; i < std::min(kLostShown, result.lost.size()); ++i) {
    const experiments::LostSlice& lost = result.lost[i];
    const bool one = lost.first_block == lost.last_block;
    table.row({one ? fmt::format("{}", lost.first_block)
                   : fmt::format("{}-{}", lost.first_block, lost.last_block),
               lost.parameter, slice_text(lost), lost.states, mebibytes(lost.bytes), lost.held_by,
               lost.needed_by});
  }
  std::string text =
      section("Lost state", fmt::format("{} MiB: {}\n{}", mebibytes(result.lost_bytes),
                                        bad("lives on lost devices only; a checkpoint must bring "
                                            "it back"),
                                        table.text(0, colors())));
  if (result.lost.size() > kLostShown) {
    text += fmt::format("and {} (--json shows all)\n",
                        counted(result.lost.size() - kLostShown, "slice"));
  }
  return text;
}

/// What the planner made of the devices that are left; "" with a plan file.
std::string made_text(const SwitchResult& result) {
  if (!result.made) return "";
  if (!result.made->evaluation) return bad("no plan of the devices that are left") + "\n";
  return fmt::format("an iteration of the new plan: {} s\n",
                     seconds_cell(result.made->evaluation->iteration_time.value));
}

std::string switch_text(const SwitchResult& result) {
  const std::string way = fmt::format(
      "{} -> {}, lost devices: {}\n{}", result.from, result.to,
      result.lost_devices.empty() ? "none" : id_ranges(result.lost_devices), made_text(result));
  if (result.made && !result.made->plan) return job_line(result.inputs) + way;
  return fmt::format(
      "{}{}"
      "state: {}, {} bytes per parameter; {} send-receive\n"
      "\n"
      "{}\n"
      "simulated transfers: {} s, all in contention\n"
      "kept: needed and there already, copied inside the device or left where it is\n{}",
      job_line(result.inputs), way, ir::name_of(result.state), result.bytes_per_parameter,
      ir::name_of(result.variant), traffic_table(result), seconds_cell(result.simulated.value),
      lost_text(result));
}

void print_switch(const SwitchResult& result, const experiments::SwitchSettings&) {
  print(switch_text(result));
}

}  // namespace

extern const Command kSwitch;
const Command kSwitch = command<experiments::switch_plans, print_switch>(
    "switch", "Go from one plan to another: what moves, how long it takes, what is lost",
    "switch experiments/hetu/plans/c1.yaml experiments/hetu/plans/c2.yaml --cluster hetu_32h20 "
    "--model hetu_32b --sequence-length 4096 --lost 31",
    "Exit code 1: some state lives on lost devices only, or the planner finds no plan.");

}  // namespace orrery::tools
