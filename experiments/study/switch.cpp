#include "experiments/study/switch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "experiments/study/checks.h"
#include "experiments/study/exports.h"
#include "experiments/study/plan_text.h"
#include "experiments/study/run_tasks.h"
#include "models/cost/pricer.h"
#include "models/reshard/reshard_program.h"
#include "models/spec/topology.h"
#include "planners/catalog.h"
#include "sim/iteration/iteration.h"

namespace orrery::experiments {
namespace {

using config::Diagnostics;

void report(const std::vector<models::ReshardProblem>& problems, const SwitchSettings& args,
            Diagnostics& diagnostics) {
  using Where = models::ReshardProblem::Where;
  for (const models::ReshardProblem& problem : problems) {
    config::Position at = at_setting("lost");
    if (problem.where == Where::from) at = {args.from, 0, 0};
    if (problem.where == Where::to && args.to) at = {*args.to, 0, 0};
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

/// What a planner is asked: for a plan of what is left, of the job of the plan that is left behind.
LoadedRun load_rest(const SwitchSettings& settings, Diagnostics& problems) {
  const models::Library library = open_library(problems);
  JobSettings job = settings.job;
  const ReadPlan from(settings.from);
  take_origin(from, job);
  job.set_default("global_batch", batch_of(from));
  job.allow_by_default();
  RunSpec spec = make_spec(job, {}, {}, problems);
  PlannerChoice choice{{*settings.planner, at_setting("planner")}, settings.options, {}};
  for (const auto& [name, value] : settings.options) {
    choice.option_positions[name] = at_setting("option");
  }
  check_planner(choice, problems);
  spec.planner = std::move(choice);
  spec.hardware.without = settings.lost;
  const planners::PlannerEntry* entry = planners::find_planner(*settings.planner);
  if (entry != nullptr && entry->keeps_near) spec.near = {settings.from, {}};
  if (!problems.empty()) return {};
  return load_run(spec, "", library, problems);
}

/// What moves from one plan to that of `run`.
void add_moves(const SwitchSettings& settings, const ir::Plan& from, const LoadedRun& run,
               Diagnostics problems, SwitchResult& result) {
  models::ReshardOptions options;
  options.lost = result.lost_devices;
  options.variant = settings.variant;
  options.bytes = settings.state == MovedState::weights ? models::weight_bytes(run.spec.job)
                                                        : models::all_state_bytes(run.spec.job);
  report(models::find_problems(from, *run.plan, run.cluster, options), settings, problems);
  problems.raise();
  const models::Topology topology(run.cluster, run.profile);
  const models::ReshardPlan plan =
      models::plan_reshard(from, *run.plan, run.cluster, topology, run.workload, options);
  result.bytes_per_parameter = plan.bytes.weight + plan.bytes.optimizer();
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
}

}  // namespace

std::vector<std::pair<MovedState, const char*>> enum_names(MovedState) {
  return {{MovedState::weights, "weights"}, {MovedState::all, "all"}};
}

void describe(config::Visitor& v, SwitchSettings& settings) {
  v.required("from", settings.from, "plan file: how the state lies now", {.positional = true});
  v.optional("to", settings.to, "plan file: how it must lie; or --planner makes that plan",
             {.positional = true});
  v.optional("lost", settings.lost,
             "nodes and devices that are gone with what they held: h100-0,24-31,40",
             {.commas = true});
  v.optional("planner", settings.planner,
             "makes the plan to go to, of the devices that are left; orrery keeps near to the plan "
             "that it comes from",
             {.letter = 'p'});
  v.optional("option", settings.options,
             "NAME=VALUE: knob of the planner (orrery list planners NAME); may be repeated",
             {.letter = 'o'});
  v.optional("output", settings.output, "write the planner's plan");
  v.optional("state", settings.state,
             "what moves: weights (with the master copy; default) or all (and the moments)");
  v.optional(
      "variant", settings.variant,
      "fused (default: a layer's slices that lie alike go as a whole), fused-by-tensor, unfused "
      "(tensor by tensor), no-heuristics (from the lowest id)");
  describe(v, settings.job);
  describe(v, settings.cache);
  if (!v.reading()) return;
  if (settings.to.has_value() == settings.planner.has_value()) {
    v.problem(settings.to ? "planner" : "to",
              settings.to ? "a plan file and a planner exclude each other"
                          : "neither a plan file nor a planner is given",
              "orrery switch FROM TO, or orrery switch FROM --lost NODE --planner orrery");
  }
  if (!settings.planner && (settings.output || !settings.options.empty())) {
    v.problem(settings.output ? "output" : "option", "is for --planner");
  }
}

std::vector<std::string> input_files(const SwitchSettings& settings) {
  std::vector<std::string> files = input_files(settings.job);
  files.push_back(settings.from);
  if (settings.to) files.push_back(*settings.to);
  return files;
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
  v.required("to", result.to, "plan file or planner");
  if (!v.dumping() || result.made) v.optional("made", result.made, "what the planner made");
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

int exit_status(const SwitchResult& result) {
  return result.lost.empty() && !(result.made && !result.made->plan) ? 0 : 1;
}

SwitchResult switch_plans(const SwitchSettings& settings, const Call& call, Diagnostics problems) {
  const std::vector<OutputFile> outputs = {{"output", settings.output}};
  check_outputs(outputs, input_files(settings), problems);
  std::vector<std::string> files = {settings.from};
  if (settings.to) files.push_back(*settings.to);
  std::vector<LoadedRun> runs = load_plans(files, settings.job, {}, {}, std::move(problems));
  problems = {};
  check_same_inputs(runs.front(), runs.back(), problems);
  problems.raise();
  SwitchResult result;
  result.cluster = runs.front().cluster.name;
  result.model = runs.front().workload.name;
  result.from = settings.from;
  result.to = settings.to ? *settings.to : *settings.planner;
  result.state = settings.state;
  result.variant = settings.variant;
  const auto lost = devices_named(settings.lost, runs.back().cluster, problems);
  result.lost_devices.assign(lost.begin(), lost.end());
  if (settings.planner) {
    LoadedRun rest = load_rest(settings, problems);
    problems.raise();
    probe_outputs(outputs);
    const auto answers = settings.cache.open(call.on_note);
    result.made = run_tasks({{*settings.planner, rest, {}}}, call, answers.get()).front();
    rest.plan = result.made->plan;
    if (settings.output && rest.plan) {
      write_plan(*settings.output, *rest.plan, rest.cluster, origin_of(rest.spec));
    }
    runs.push_back(std::move(rest));
  }
  result.inputs = runs.back();
  if (runs.back().plan) add_moves(settings, *runs.front().plan, runs.back(), problems, result);
  return result;
}

}  // namespace orrery::experiments
