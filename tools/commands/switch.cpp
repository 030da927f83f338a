/// orrery switch: what moves when training goes from one plan to another.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/base/text.h"
#include "models/config/document.h"
#include "models/config/units.h"
#include "models/cost/pricer.h"
#include "models/reshard/reshard_plan.h"
#include "models/reshard/reshard_program.h"
#include "models/spec/topology.h"
#include "sim/iteration/iteration.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/commands/inputs.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

/// Which states move.
enum class MovedState { weights, all };
std::vector<std::pair<MovedState, const char*>> enum_names(MovedState) {
  return {{MovedState::weights, "weights"}, {MovedState::all, "all"}};
}

/// A change from one plan to another.
struct SwitchSettings {
  JobSettings job;
  std::string from;
  std::string to;
  Text lost;  ///< Devices: 24-31,40
  MovedState state = MovedState::weights;
  models::ReshardVariant variant = models::ReshardOptions{}.variant;
  bool json = false;
};

void describe(config::Visitor& v, SwitchSettings& settings) {
  v.required("from", settings.from, "plan file: how the state lies now", {.positional = true});
  v.required("to", settings.to, "plan file: how it must lie", {.positional = true});
  v.optional("lost", settings.lost, "devices that are gone with what they held: 31 or 24-31,40");
  v.optional("state", settings.state,
             "what moves: weights (with the master copy; default) or all (and the moments)");
  v.optional("variant", settings.variant,
             "fused (default), unfused (tensor by tensor), no-heuristics (from the lowest id)");
  describe_json(v, settings.json);
  describe(v, settings.job, BatchDefault::of_the_plan);
}

}  // namespace

namespace {

using config::Diagnostics;
using models::PathClass;

constexpr int kStateIsLost = 1;
/// Hetu v2 prints megabytes that are thousandths of a GiB.
constexpr double kPaperMegabyte = 0x1p30 / 1000;
constexpr std::size_t kLostShown = 24;

/// Bytes by class of path.
struct VolumeRecord {
  double nvlink = 0;
  double pcie = 0;
  double network = 0;
  double host_staged = 0;
};

struct DeviceRecord {
  int device = 0;
  std::string node;
  VolumeRecord sent_bytes;
  VolumeRecord received_bytes;
  std::int64_t messages_sent = 0;
  std::int64_t messages_received = 0;
  double kept_bytes = 0;
  double lost_bytes = 0;
};

/// A slice of a parameter that no live device has, in equal consecutive blocks.
struct LostRecord {
  int first_block = 0;
  int last_block = 0;
  std::string parameter;
  std::string states;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t length = 0;  ///< Of what is split; 1: not split.
  double bytes = 0;         ///< Over all blocks.
  std::string held_by;
  std::string needed_by;
};

/// What `--json` prints.
struct SwitchDocument {
  std::string cluster;
  std::string model;
  std::string from;
  std::string to;
  std::vector<int> lost_devices;
  std::string state;
  double bytes_per_parameter = 0;
  std::string variant;
  double simulated_seconds = 0;
  VolumeRecord moved_bytes;
  std::int64_t messages = 0;
  double kept_bytes = 0;
  double lost_bytes = 0;  ///< Each lost slice once.
  std::vector<DeviceRecord> devices;
  std::vector<LostRecord> lost;
};

void describe(config::Visitor& v, VolumeRecord& volume) {
  v.required("nvlink", volume.nvlink, "");
  v.required("pcie", volume.pcie, "");
  v.required("network", volume.network, "");
  v.required("host_staged", volume.host_staged, "");
}

void describe(config::Visitor& v, DeviceRecord& device) {
  v.required("device", device.device, "");
  v.required("node", device.node, "");
  v.required("sent_bytes", device.sent_bytes, "");
  v.required("received_bytes", device.received_bytes, "");
  v.required("messages_sent", device.messages_sent, "");
  v.required("messages_received", device.messages_received, "");
  v.required("kept_bytes", device.kept_bytes, "");
  v.required("lost_bytes", device.lost_bytes, "");
}

void describe(config::Visitor& v, LostRecord& lost) {
  v.required("first_block", lost.first_block, "");
  v.required("last_block", lost.last_block, "");
  v.required("parameter", lost.parameter, "");
  v.required("states", lost.states, "");
  v.required("begin", lost.begin, "");
  v.required("end", lost.end, "");
  v.required("length", lost.length, "");
  v.required("bytes", lost.bytes, "");
  v.required("held_by", lost.held_by, "");
  v.required("needed_by", lost.needed_by, "");
}

void describe(config::Visitor& v, SwitchDocument& document) {
  v.title("Switch");
  v.required("cluster", document.cluster, "");
  v.required("model", document.model, "");
  v.required("from", document.from, "");
  v.required("to", document.to, "");
  v.required("lost_devices", document.lost_devices, "");
  v.required("state", document.state, "");
  v.required("bytes_per_parameter", document.bytes_per_parameter, "");
  v.required("variant", document.variant, "");
  v.required("simulated_seconds", document.simulated_seconds, "");
  v.required("moved_bytes", document.moved_bytes, "");
  v.required("messages", document.messages, "");
  v.required("kept_bytes", document.kept_bytes, "");
  v.required("lost_bytes", document.lost_bytes, "");
  v.required("devices", document.devices, "");
  v.required("lost", document.lost, "");
}

// ---- flags ----

template <class E>
std::string name_of_choice(E value) {
  for (const auto& [known, name] : enum_names(value)) {
    if (known == value) return name;
  }
  return "";
}

/// "31" or "24-31,40", ascending and distinct.
std::vector<DeviceId> parse_devices(const Text& text, const char* flag, Diagnostics& diagnostics) {
  constexpr std::int64_t kMost = 1 << 20;
  std::vector<DeviceId> out;
  if (!text) return out;
  const std::vector<std::string> items = split(*text, ',');
  if (items.empty()) diagnostics.add(at_flag(flag), "no devices", "for example 31 or 24-31,40");
  for (const std::string& item : items) {
    config::TextError error;
    const std::size_t dash = item.find('-', 1);
    const auto first = config::parse_integer(item.substr(0, dash), 0, kMost, error);
    const auto last = dash == std::string::npos || !first
                          ? first
                          : config::parse_integer(item.substr(dash + 1), 0, kMost, error);
    if (!first || !last || *last < *first) {
      diagnostics.add(at_flag(flag), fmt::format("'{}' is no device and no range", item),
                      "for example 31 or 24-31,40");
      continue;
    }
    for (std::int64_t d = *first; d <= *last; ++d) out.push_back({static_cast<std::int32_t>(d)});
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void report(const std::vector<models::ReshardProblem>& problems, const SwitchSettings& args,
            Diagnostics& diagnostics) {
  using Where = models::ReshardProblem::Where;
  for (const models::ReshardProblem& problem : problems) {
    config::Position at = at_flag("--lost");
    if (problem.where == Where::from) at = {args.from, 0, 0};
    if (problem.where == Where::to) at = {args.to, 0, 0};
    diagnostics.add(at, problem.what);
  }
}

// ---- results ----

VolumeRecord volumes(const models::ClassVolumes& bytes) {
  const auto of = [&](PathClass path) { return bytes[static_cast<std::size_t>(path)].value; };
  return {of(PathClass::nvlink), of(PathClass::pcie), of(PathClass::network),
          of(PathClass::host_staged)};
}

/// Slices that are lost for the same devices, over consecutive blocks.
std::vector<LostRecord> lost_records(const models::ReshardPlan& plan,
                                     const models::Workload& workload) {
  std::vector<LostRecord> out;
  const auto length = [&](const models::Parameter& parameter) {
    const std::int64_t width = std::max<std::int64_t>(1, parameter.split_length);
    return parameter.expert ? width * std::max(1, workload.shape.experts) : width;
  };
  using Key =
      std::tuple<std::string, std::string, std::int64_t, std::int64_t, std::string, std::string>;
  std::map<Key, std::size_t> latest;
  for (const models::LostState& lost : plan.lost) {
    const models::StateRow& row = plan.rows[lost.row];
    const models::Parameter& parameter =
        workload.block(row.block).parameters[static_cast<std::size_t>(row.parameter)];
    LostRecord record = {row.block.value,           row.block.value, parameter.name,
                         models::name_of(row.part), row.slice.begin, row.slice.end,
                         length(parameter),         row.bytes.value, id_ranges(lost.held_by),
                         id_ranges(lost.needed_by)};
    const auto [at, fresh] = latest.try_emplace({record.parameter, record.states, record.begin,
                                                 record.end, record.held_by, record.needed_by},
                                                out.size());
    if (!fresh && out[at->second].last_block + 1 == record.first_block) {
      out[at->second].last_block = record.last_block;
      out[at->second].bytes += record.bytes;
      continue;
    }
    at->second = out.size();
    out.push_back(std::move(record));
  }
  return out;
}

/// Time of all transfers in contention; copies inside devices take none.
double simulate_switch(const models::ReshardPlan& plan, const experiments::LoadedRun& run,
                       const models::Topology& topology) {
  const ir::Program program = models::reshard_program(plan, run.workload, run.spec.job);
  if (program.ops.empty()) return 0;
  sim::IterationOptions options;
  options.record_spans = options.record_memory = options.record_links = false;
  sim::IterationSimulator simulator(run.cluster, topology, false);
  const models::Pricer pricer(run.cluster, run.workload, run.spec.job, run.profile);
  return simulator.run(program, pricer, options).iteration_time.value;
}

SwitchDocument make_document(const SwitchSettings& args, const experiments::LoadedRun& run,
                             const models::ReshardPlan& plan) {
  SwitchDocument document;
  document.cluster = run.cluster.name;
  document.model = run.workload.name;
  document.from = args.from;
  document.to = args.to;
  document.bytes_per_parameter = plan.bytes.weight + plan.bytes.optimizer();
  document.moved_bytes = volumes(plan.moved);
  document.messages = static_cast<std::int64_t>(plan.messages.size());
  for (const models::DeviceTraffic& device : plan.devices) {
    document.kept_bytes += device.kept.value;
    document.devices.push_back(
        {device.device.value, run.cluster.node(run.cluster.device(device.device).node).name,
         volumes(device.sent), volumes(device.received), device.messages_sent,
         device.messages_received, device.kept.value, device.lost.value});
  }
  document.lost = lost_records(plan, run.workload);
  for (const LostRecord& lost : document.lost) document.lost_bytes += lost.bytes;
  return document;
}

// ---- text ----

std::string megabytes(double bytes) { return grouped(bytes / kPaperMegabyte, 1); }

double total(const VolumeRecord& volume) {
  return volume.nvlink + volume.pcie + volume.network + volume.host_staged;
}

std::string traffic_table(const SwitchDocument& document) {
  const bool staged = document.moved_bytes.host_staged > 0;
  Table table;
  table.column("sender").column("node").number("NVLink MB").number("PCIe MB");
  table.number("network MB");
  if (staged) table.number("through hosts MB");
  table.number("messages").number("received MB").number("kept MB");
  const auto row = [&](std::string name, std::string node, const VolumeRecord& sent,
                       std::int64_t messages, double received, double kept) {
    std::vector<std::string> cells = {std::move(name), std::move(node), megabytes(sent.nvlink),
                                      megabytes(sent.pcie), megabytes(sent.network)};
    if (staged) cells.push_back(megabytes(sent.host_staged));
    cells.push_back(grouped(static_cast<double>(messages), 0));
    cells.push_back(megabytes(received));
    cells.push_back(megabytes(kept));
    table.row(std::move(cells));
  };
  for (const DeviceRecord& device : document.devices) {
    if (device.messages_sent + device.messages_received == 0) continue;
    row(std::to_string(device.device), device.node, device.sent_bytes, device.messages_sent,
        total(device.received_bytes), device.kept_bytes);
  }
  row("all", "", document.moved_bytes, document.messages, total(document.moved_bytes),
      document.kept_bytes);
  return table.text(0, colors());
}

std::string lost_text(const SwitchDocument& document) {
  if (document.lost.empty()) {
    return "lost state: none, every slice that is needed lives on some device\n";
  }
  Table table;
  table.column("blocks").column("parameter").column("slice").column("states").number("MB");
  table.column("only on lost").column("needed by");
  for (std::size_t i = 0; i < std::min(kLostShown, document.lost.size()); ++i) {
    const LostRecord& lost = document.lost[i];
    const bool one = lost.first_block == lost.last_block;
    table.row({one ? fmt::format("{}", lost.first_block)
                   : fmt::format("{}-{}", lost.first_block, lost.last_block),
               lost.parameter,
               lost.length == 1 ? "whole"
                                : fmt::format("{}-{} of {}", lost.begin, lost.end - 1, lost.length),
               lost.states, megabytes(lost.bytes), lost.held_by, lost.needed_by});
  }
  std::string text =
      section("Lost state", fmt::format("{} MB: {}\n{}", megabytes(document.lost_bytes),
                                        bad("lives on lost devices only; a checkpoint must bring "
                                            "it back"),
                                        table.text(0, colors())));
  if (document.lost.size() > kLostShown) {
    text += fmt::format("and {} (--json shows all)\n",
                        counted(document.lost.size() - kLostShown, "slice"));
  }
  return text;
}

std::string document_text(const SwitchDocument& document, const std::vector<DeviceId>& lost,
                          const experiments::LoadedRun& run) {
  return fmt::format(
      "{}{} -> {}, lost devices: {}\n"
      "state: {}, {} bytes per parameter; {} send-receive\n"
      "1 MB is a thousandth of a GiB (1,073,741.8 bytes), as in Hetu v2\n\n"
      "{}\n"
      "simulated transfers: {} s, all in contention\n"
      "kept: needed and there already, copied inside the device or left where it is\n{}",
      job_line(run), document.from, document.to, lost.empty() ? "none" : id_ranges(lost),
      document.state, document.bytes_per_parameter, document.variant, traffic_table(document),
      seconds_cell(document.simulated_seconds), lost_text(document));
}

}  // namespace

namespace {

int run(const SwitchSettings& args, Diagnostics& diagnostics) {
  models::ReshardOptions options;
  options.lost = parse_devices(args.lost, "--lost", diagnostics);
  options.variant = args.variant;
  diagnostics.raise();
  const std::vector<experiments::LoadedRun> runs = load_plans({args.from, args.to}, args.job, {});
  const experiments::LoadedRun& run = runs.back();
  options.bytes = args.state == MovedState::weights ? models::weight_bytes(run.spec.job)
                                                    : models::all_state_bytes(run.spec.job);
  const ir::Plan& from = *runs.front().plan;
  const ir::Plan& to = *run.plan;
  report(models::find_problems(from, to, run.cluster, options), args, diagnostics);
  diagnostics.raise();

  const models::Topology topology(run.cluster, run.profile);
  const models::ReshardPlan plan =
      models::plan_reshard(from, to, run.cluster, topology, run.workload, options);
  SwitchDocument document = make_document(args, run, plan);
  document.state = name_of_choice(args.state);
  document.variant = name_of_choice(options.variant);
  for (const DeviceId device : options.lost) document.lost_devices.push_back(device.value);
  document.simulated_seconds = simulate_switch(plan, run, topology);
  print(args.json ? to_json(document) : document_text(document, options.lost, run));
  return document.lost.empty() ? 0 : kStateIsLost;
}

}  // namespace

extern const Command kSwitch;
const Command kSwitch = printing_command<SwitchSettings, run>(
    "switch", "Go from one plan to another: what moves, how long it takes, what is lost",
    "switch experiments/hetu/plans/c1.yaml experiments/hetu/plans/c2.yaml --cluster hetu_32h20 "
    "--model hetu_32b --sequence-length 4096 --lost 31",
    "Exit code 1: some state lives on lost devices only.");

}  // namespace orrery::tools
