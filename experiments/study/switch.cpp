#include "experiments/study/switch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "experiments/study/plan_text.h"
#include "experiments/study/run_tasks.h"
#include "models/base/text.h"
#include "models/config/units.h"
#include "models/cost/pricer.h"
#include "models/reshard/reshard_program.h"
#include "models/spec/topology.h"
#include "sim/iteration/iteration.h"

namespace orrery::experiments {
namespace {

using config::Diagnostics;

/// "31" or "24-31,40", ascending and distinct.
std::vector<DeviceId> parse_devices(const Text& text, Diagnostics& diagnostics) {
  constexpr std::int64_t kMost = 1 << 20;
  std::vector<DeviceId> out;
  if (!text) return out;
  const std::vector<std::string> items = split(*text, ',');
  if (items.empty())
    diagnostics.add(at_setting("lost"), "no devices", "for example 31 or 24-31,40");
  for (const std::string& item : items) {
    config::TextError error;
    const std::size_t dash = item.find('-', 1);
    const auto first = config::parse_integer(item.substr(0, dash), 0, kMost, error);
    const auto last = dash == std::string::npos || !first
                          ? first
                          : config::parse_integer(item.substr(dash + 1), 0, kMost, error);
    if (!first || !last || *last < *first) {
      diagnostics.add(at_setting("lost"), fmt::format("'{}' is no device and no range", item),
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
    config::Position at = at_setting("lost");
    if (problem.where == Where::from) at = {args.from, 0, 0};
    if (problem.where == Where::to) at = {args.to, 0, 0};
    diagnostics.add(at, problem.what);
  }
}

/// Slices that are lost for the same devices, over consecutive blocks.
std::vector<LostSlice> lost_slices(const models::ReshardPlan& plan,
                                   const models::Workload& workload) {
  std::vector<LostSlice> out;
  const auto length = [&](const models::Parameter& parameter) {
    const std::int64_t width = std::max<std::int64_t>(1, parameter.split_length);
    return parameter.expert ? width * std::max(1, workload.shape.experts) : width;
  };
  using Key =
      std::tuple<std::string, std::string, std::int64_t, std::int64_t, std::string, std::string>;
  std::map<Key, std::size_t> latest;
  for (const models::LostState& lost : plan.lost) {
    const models::StateRow& row = plan.rows[lost.row];
    const models::Parameter& parameter = workload.block(row.block).parameters[row.parameter];
    LostSlice slice = {row.block.value,           row.block.value, parameter.name,
                       models::name_of(row.part), row.slice.begin, row.slice.end,
                       length(parameter),         row.bytes,       id_ranges(lost.held_by),
                       id_ranges(lost.needed_by)};
    const auto [at, fresh] = latest.try_emplace(
        {slice.parameter, slice.states, slice.begin, slice.end, slice.held_by, slice.needed_by},
        out.size());
    if (!fresh && out[at->second].last_block + 1 == slice.first_block) {
      out[at->second].last_block = slice.last_block;
      out[at->second].bytes += slice.bytes;
      continue;
    }
    at->second = out.size();
    out.push_back(std::move(slice));
  }
  return out;
}

struct TransferTime {
  Seconds time;
};
void describe(config::Visitor& v, TransferTime& result) { v.required("time", result.time, ""); }

Seconds simulate_switch(const models::ReshardPlan& plan, const LoadedRun& run,
                        const models::Topology& topology) {
  const ir::Program program = models::reshard_program(plan, run.workload, run.spec.job);
  if (program.ops.empty()) return {};
  return run_in_child<TransferTime>(
             "the switch",
             [&] {
               sim::IterationOptions options;
               options.record_spans = options.record_memory = options.record_links = false;
               sim::IterationSimulator simulator(run.cluster, topology, false);
               const models::Pricer pricer(run.cluster, run.workload, run.spec.job, run.profile);
               return TransferTime{simulator.run(program, pricer, options).iteration_time};
             })
      .time;
}

}  // namespace

std::vector<std::pair<MovedState, const char*>> enum_names(MovedState) {
  return {{MovedState::weights, "weights"}, {MovedState::all, "all"}};
}

void describe(config::Visitor& v, SwitchSettings& settings) {
  v.required("from", settings.from, "plan file: how the state lies now", {.positional = true});
  v.required("to", settings.to, "plan file: how it must lie", {.positional = true});
  v.optional("lost", settings.lost, "devices that are gone with what they held: 31 or 24-31,40");
  v.optional("state", settings.state,
             "what moves: weights (with the master copy; default) or all (and the moments)");
  v.optional(
      "variant", settings.variant,
      "fused (default: a layer's slices that lie alike go as a whole), fused-by-tensor, unfused "
      "(tensor by tensor), no-heuristics (from the lowest id)");
  describe(v, settings.job);
}

void describe(config::Visitor& v, SwitchedDevice& device) {
  models::DeviceTraffic& traffic = device.traffic;
  v.title("Traffic of a device");
  v.required("device", traffic.device, "");
  v.required("node", device.node, "its name");
  v.required("sent_bytes", traffic.sent, "by path");
  v.required("received_bytes", traffic.received, "by path");
  v.required("messages_sent", traffic.messages_sent, "");
  v.required("messages_received", traffic.messages_received, "");
  v.required("kept_bytes", traffic.kept, "needed and there already");
  v.required("lost_bytes", traffic.lost, "needed and nowhere");
}

void describe(config::Visitor& v, LostSlice& slice) {
  v.title("Lost slice");
  v.required("first_block", slice.first_block, "");
  v.required("last_block", slice.last_block, "");
  v.required("parameter", slice.parameter, "its name");
  v.required("states", slice.states, "weights, optimizer or all");
  v.required("begin", slice.begin, "");
  v.required("end", slice.end, "behind the last");
  v.required("length", slice.length, "of what is split; 1: not split");
  v.required("bytes", slice.bytes, "over all blocks");
  v.required("held_by", slice.held_by, "lost devices");
  v.required("needed_by", slice.needed_by, "devices");
}

void describe(config::Visitor& v, SwitchResult& result) {
  v.title("Switch");
  v.required("cluster", result.cluster, "its name");
  v.required("model", result.model, "its name");
  v.required("from", result.from, "plan file");
  v.required("to", result.to, "plan file");
  v.required("lost_devices", result.lost_devices, "with what they held");
  v.required("state", result.state, "what moves");
  v.required("bytes_per_parameter", result.bytes_per_parameter, "that move");
  v.required("variant", result.variant, "how senders are chosen");
  v.required("simulated_seconds", result.simulated, "of all transfers in contention");
  v.required("moved_bytes", result.moved, "by path");
  v.required("messages", result.messages, "between devices");
  v.required("kept_bytes", result.kept, "needed and there already");
  v.required("lost_bytes", result.lost_bytes, "each lost slice once");
  v.required("devices", result.devices, "that need or send anything");
  v.required("lost", result.lost, "slices that no live device has");
}

int exit_status(const SwitchResult& result) { return result.lost.empty() ? 0 : 1; }

SwitchResult switch_plans(const SwitchSettings& settings, const Call&, Diagnostics problems) {
  models::ReshardOptions options;
  options.lost = parse_devices(settings.lost, problems);
  options.variant = settings.variant;
  problems.raise();
  const std::vector<LoadedRun> runs = load_plans({settings.from, settings.to}, settings.job, {});
  const LoadedRun& run = runs.back();
  options.bytes = settings.state == MovedState::weights ? models::weight_bytes(run.spec.job)
                                                        : models::all_state_bytes(run.spec.job);
  const ir::Plan& from = *runs.front().plan;
  const ir::Plan& to = *run.plan;
  report(models::find_problems(from, to, run.cluster, options), settings, problems);
  problems.raise();

  const models::Topology topology(run.cluster, run.profile);
  const models::ReshardPlan plan =
      models::plan_reshard(from, to, run.cluster, topology, run.workload, options);
  SwitchResult result;
  result.cluster = run.cluster.name;
  result.model = run.workload.name;
  result.from = settings.from;
  result.to = settings.to;
  result.lost_devices = options.lost;
  result.state = settings.state;
  result.bytes_per_parameter = plan.bytes.weight + plan.bytes.optimizer();
  result.variant = options.variant;
  result.simulated = simulate_switch(plan, run, topology);
  result.moved = plan.moved;
  result.messages = static_cast<std::int64_t>(plan.messages.size());
  for (const models::DeviceTraffic& device : plan.devices) {
    result.kept += device.kept;
    result.devices.push_back(
        {device, run.cluster.node(run.cluster.device(device.device).node).name});
  }
  result.lost = lost_slices(plan, run.workload);
  for (const LostSlice& lost : result.lost) result.lost_bytes += lost.bytes;
  result.inputs = run;
  return result;
}

}  // namespace orrery::experiments
