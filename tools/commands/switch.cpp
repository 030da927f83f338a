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

/// Hetu v2 prints megabytes that are thousandths of a GiB.
constexpr double kPaperMegabyte = 0x1p30 / 1000;
constexpr std::size_t kLostShown = 24;

std::string megabytes(Bytes bytes) { return grouped(bytes.value / kPaperMegabyte, 1); }

std::string traffic_table(const SwitchResult& result) {
  const bool staged = result.moved[PathClass::host_staged].value > 0;
  Table table;
  table.column("sender").column("node").number("NVLink MB").number("PCIe MB");
  table.number("network MB");
  if (staged) table.number("through hosts MB");
  table.number("messages").number("received MB").number("kept MB");
  const auto row = [&](std::string name, std::string node, const models::ClassVolumes& sent,
                       std::int64_t messages, Bytes received, Bytes kept) {
    std::vector<std::string> cells = {std::move(name), std::move(node)};
    for (const PathClass path : {PathClass::nvlink, PathClass::pcie, PathClass::network}) {
      cells.push_back(megabytes(sent[path]));
    }
    if (staged) cells.push_back(megabytes(sent[PathClass::host_staged]));
    cells.push_back(grouped(static_cast<double>(messages), 0));
    cells.push_back(megabytes(received));
    cells.push_back(megabytes(kept));
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

std::string lost_text(const SwitchResult& result) {
  if (result.lost.empty()) {
    return "lost state: none, every slice that is needed lives on some device\n";
  }
  Table table;
  table.column("blocks").column("parameter").column("slice").column("states").number("MB");
  table.column("only on lost").column("needed by");
  for (std::size_t i = 0; i < std::min(kLostShown, result.lost.size()); ++i) {
    const experiments::LostSlice& lost = result.lost[i];
    const bool one = lost.first_block == lost.last_block;
    table.row({one ? fmt::format("{}", lost.first_block)
                   : fmt::format("{}-{}", lost.first_block, lost.last_block),
               lost.parameter,
               lost.length == 1 ? "whole"
                                : fmt::format("{}-{} of {}", lost.begin, lost.end - 1, lost.length),
               lost.states, megabytes(lost.bytes), lost.held_by, lost.needed_by});
  }
  std::string text =
      section("Lost state", fmt::format("{} MB: {}\n{}", megabytes(result.lost_bytes),
                                        bad("lives on lost devices only; a checkpoint must bring "
                                            "it back"),
                                        table.text(0, colors())));
  if (result.lost.size() > kLostShown) {
    text += fmt::format("and {} (--json shows all)\n",
                        counted(result.lost.size() - kLostShown, "slice"));
  }
  return text;
}

std::string switch_text(const SwitchResult& result) {
  return fmt::format(
      "{}{} -> {}, lost devices: {}\n"
      "state: {}, {} bytes per parameter; {} send-receive\n"
      "1 MB is a thousandth of a GiB (1,073,741.8 bytes), as in Hetu v2\n\n"
      "{}\n"
      "simulated transfers: {} s, all in contention\n"
      "kept: needed and there already, copied inside the device or left where it is\n{}",
      job_line(result.inputs), result.from, result.to,
      result.lost_devices.empty() ? "none" : id_ranges(result.lost_devices),
      ir::name_of(result.state), result.bytes_per_parameter, ir::name_of(result.variant),
      traffic_table(result), seconds_cell(result.simulated.value), lost_text(result));
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
    "Exit code 1: some state lives on lost devices only.");

}  // namespace orrery::tools
