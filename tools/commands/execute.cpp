/// orrery execute: a plan run for real, by one process for each device; orrery execute-agent: the
/// helper on other machines.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>

#include "executor/cuda/backend.h"
#include "executor/cuda/nccl_transport.h"
#include "executor/engine/data.h"
#include "executor/launcher/agent.h"
#include "executor/launcher/launcher.h"
#include "executor/launcher/rank_process.h"
#include "executor/net/transport.h"
#include "models/base/rng.h"
#include "models/config/document.h"
#include "planners/recovery/catalog.h"
#include "tools/commands/commands.h"
#include "tools/commands/execute_program.h"
#include "tools/commands/execute_recovery.h"
#include "tools/commands/execute_report.h"
#include "tools/commands/inputs.h"
#include "tools/commands/judge.h"
#include "tools/commands/output.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

using config::Diagnostics;
using executor::LaunchReport;

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int signal_number) {
  // The second one ends the process at once; local ranks die with it.
  if (interrupted.exchange(true)) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
  }
}

double number(const Text& text, const char* flag, double fallback, Diagnostics& diagnostics) {
  if (!text) return fallback;
  double value = fallback;
  char* end = nullptr;
  value = std::strtod(text->c_str(), &end);
  if (end == text->c_str() || *end != '\0' || !(value > 0) || value > 1e12) {
    diagnostics.add(at_flag(flag), fmt::format("'{}' is no positive number up to 1e12", *text));
    return fallback;
  }
  return value;
}

void require_one_of(const Text& text, const char* flag, const std::vector<std::string>& names,
                    const char* part, Diagnostics& diagnostics) {
  if (!text || std::find(names.begin(), names.end(), *text) != names.end()) return;
  diagnostics.add(at_flag(flag), fmt::format("unknown value '{}'", *text),
                  config::suggest(*text, names, part));
}

/// "left@right": the right part as a whole number of at least 1.
std::optional<std::pair<std::string, std::int64_t>> at_step(const std::string& text,
                                                            const char* flag, const char* shape,
                                                            Diagnostics& diagnostics) {
  const std::size_t at = text.rfind('@');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    diagnostics.add(at_flag(flag), fmt::format("'{}' is not {}", text, shape));
    return std::nullopt;
  }
  return std::pair(text.substr(0, at), whole_number(text.substr(at + 1), flag, 1, 1, diagnostics));
}

std::vector<executor::HostSlots> hosts_of(const Text& text, Diagnostics& diagnostics) {
  std::vector<executor::HostSlots> hosts;
  if (!text) return hosts;
  for (const std::string& item : split(*text, ',')) {
    const std::size_t colon = item.rfind(':');
    const std::string name = item.substr(0, colon);
    const bool plain = !name.empty() && name.find_first_of(" /'\"") == std::string::npos;
    if (colon == std::string::npos || !plain) {
      diagnostics.add(at_flag("--hosts"), fmt::format("'{}' is not NAME:DEVICES", item),
                      "for example --hosts a:4,b:8");
      continue;
    }
    const bool twice = std::any_of(hosts.begin(), hosts.end(),
                                   [&](const auto& host) { return host.name == name; });
    if (twice) diagnostics.add(at_flag("--hosts"), fmt::format("'{}' is named twice", name));
    hosts.push_back({name, static_cast<int>(whole_number(item.substr(colon + 1), "--hosts", 1, 1,
                                                         diagnostics))});
  }
  if (split(*text, ',').empty()) diagnostics.add(at_flag("--hosts"), "names no host");
  return hosts;
}

executor::RunSettings settings_of(const ExecuteArgs& args, std::uint64_t seed,
                                  Diagnostics& diagnostics) {
  executor::RunSettings s;
  require_one_of(args.backend, "--backend", {"cpu", "cuda"}, "back ends", diagnostics);
  require_one_of(args.transport, "--transport", {"tcp", "nccl"}, "transports", diagnostics);
  require_one_of(args.library, "--library", {"eigen", "openblas"}, "libraries", diagnostics);
  require_one_of(args.precision, "--precision", {"fp32", "fp64", "bf16"}, "precisions",
                 diagnostics);
  s.backend = args.backend.value_or(s.backend);
  s.transport = args.transport.value_or(s.transport);
  if (s.backend == "cpu" && args.precision == "bf16") {
    diagnostics.add(at_flag("--precision"), "the cpu back end has no bf16", "fp32 or fp64");
  }
  // With --hosts the GPUs are on other machines, whose ranks say what is missing.
  if (!args.hosts && s.backend == "cuda") {
    const std::string problem = executor::cuda_status().problem;
    if (!problem.empty()) diagnostics.add(at_flag("--backend"), "cuda: " + problem);
  }
  if (!args.hosts && s.transport == "nccl") {
    const std::string problem = executor::nccl_problem();
    if (!problem.empty()) diagnostics.add(at_flag("--transport"), "nccl: " + problem);
  }
  s.library = args.library.value_or("");
  s.precision =
      executor::precision_of(args.precision.value_or("fp32")).value_or(executor::Precision::fp32);
  s.steps = whole_number(args.steps, "--steps", 1, 20, diagnostics);
  s.learning_rate = number(args.learning_rate, "--learning-rate", s.learning_rate, diagnostics);
  s.data = args.data.value_or("");
  s.data_seed = seed;
  s.log_steps = whole_number(args.log_steps, "--log-steps", 0, s.log_steps, diagnostics);
  s.checkpoint_every = whole_number(args.checkpoint_every, "--checkpoint-every", 1, 0, diagnostics);
  s.local_checkpoints = args.checkpoints.value_or("");
  s.cloud_checkpoints = args.cloud.value_or("");
  if (s.checkpoint_every > 0 && s.local_checkpoints.empty() && s.cloud_checkpoints.empty()) {
    diagnostics.add(at_flag("--checkpoint-every"), "no folder is named",
                    "--checkpoints FOLDER, --cloud FOLDER or both");
  }
  if (s.checkpoint_every == 0 && (args.checkpoints || args.cloud)) {
    diagnostics.add(at_flag(args.checkpoints ? "--checkpoints" : "--cloud"), "no interval is given",
                    "--checkpoint-every STEPS");
  }
  for (const auto* text : {&s.data, &s.local_checkpoints, &s.cloud_checkpoints}) {
    if (text->find('\n') != std::string::npos) {
      diagnostics.add(at_flag("--data, --checkpoints, --cloud"), "a path with a line break");
    }
  }
  s.elastic = args.elastic.has_value();
  s.silence = std::chrono::milliseconds(
      static_cast<std::int64_t>(1e3 * number(args.silence, "--silence", 10, diagnostics)));
  s.heartbeat = std::min(s.heartbeat, s.silence / 4);
  return s;
}

/// The first one is the plan to begin with, then those to switch to.
std::vector<experiments::LoadedRun> load_runs(const ExecuteArgs& args, const JudgeArgs& judged,
                                              const std::vector<std::string>& switches) {
  std::vector<std::string> files = switches;
  if (!args.planner) {
    files.insert(files.begin(), args.plan);
    return load_plans(files, args.job, judged);
  }
  Diagnostics diagnostics;
  const models::Library library = open_library(diagnostics);
  JobArgs job = args.job;
  if (!job.job && !job.global_batch) job.global_batch = kDefaultBatch;
  if (!job.job && !job.sequence_length) job.sequence_length = kDefaultLength;
  experiments::RunSpec spec = make_spec(job, judged, {}, diagnostics);
  spec.collapsed = true;
  spec.planner = experiments::PlannerChoice{{*args.planner, at_flag("--planner")}, {}, {}};
  check_names(spec, library, diagnostics);
  if (!diagnostics.empty()) experiments::check_planner(*spec.planner, diagnostics);
  diagnostics.raise();
  experiments::LoadedRun run = load(spec, library, diagnostics);
  diagnostics.raise();
  const std::vector<Report> reports = judge({{*args.planner, run, {}}});
  if (was_interrupted()) interrupted = true;
  if (!reports.front().plan) {
    throw std::runtime_error(fmt::format(
        "{} finds no plan: {}", *args.planner,
        reports.front().infeasible ? infeasible_text(*reports.front().infeasible) : ""));
  }
  run.plan = *reports.front().plan;
  std::vector<experiments::LoadedRun> runs = load_plans(files, job, judged);
  runs.insert(runs.begin(), std::move(run));
  return runs;
}

/// Programs of all plans; problems at the place of each plan.
std::vector<ir::Program> lower_all(const std::vector<experiments::LoadedRun>& runs,
                                   std::uint64_t seed, Diagnostics& diagnostics) {
  std::vector<ir::Program> programs;
  for (const experiments::LoadedRun& run : runs) {
    const config::Position at =
        run.spec.plan ? config::Position{run.spec.plan->value, 0, 0} : at_flag("--planner");
    ExecutableProgram lowered = lower_for_ranks(run, *run.plan, seed);
    for (const std::string& what : lowered.problems) diagnostics.add(at, what);
    programs.push_back(std::move(lowered.program));
    if (programs.back().header.global_batch != programs.front().header.global_batch) {
      diagnostics.add(at, fmt::format("a batch of {} where the first plan has {}",
                                      programs.back().header.global_batch,
                                      programs.front().header.global_batch));
    }
  }
  return programs;
}

void check_devices(const std::vector<ir::Program>& programs, int slots, Diagnostics& diagnostics) {
  for (const ir::Program& program : programs) {
    for (const ir::Rank& rank : program.ranks) {
      if (rank.device.value < slots) continue;
      diagnostics.add(at_flag("--hosts"), fmt::format("the hosts have {} devices, the plan needs "
                                                      "device {}",
                                                      slots, rank.device.value));
      return;
    }
  }
}

using RankAtStep = std::pair<std::int64_t, std::int64_t>;

std::vector<RankAtStep> kills_of(const ExecuteArgs& args, Diagnostics& diagnostics) {
  std::vector<RankAtStep> out;
  for (const std::string& text : args.kills) {
    const auto parts = at_step(text, "--kill", "RANK@STEP", diagnostics);
    if (!parts) continue;
    out.emplace_back(whole_number(parts->first, "--kill", 0, 0, diagnostics), parts->second);
  }
  return out;
}

std::vector<executor::FaultInjection> faults_of(const std::vector<RankAtStep>& kills,
                                                const ir::Program& program, std::uint64_t seed,
                                                Diagnostics& diagnostics) {
  std::vector<executor::FaultInjection> faults;
  for (const auto& [rank, step] : kills) {
    const auto ranks = static_cast<std::int64_t>(program.ranks.size());
    if (rank >= ranks) {
      diagnostics.add(at_flag("--kill"), fmt::format("rank {} of {}", rank, ranks));
      continue;
    }
    const std::uint64_t drawn = Rng(seed).fork(faults.size()).fork(7)();
    faults.push_back(
        {program.ranks[static_cast<std::size_t>(rank)].device.value, step, drawn, false});
  }
  return faults;
}

std::map<std::int32_t, double> slowdowns_of(const ExecuteArgs& args, Diagnostics& diagnostics) {
  std::map<std::int32_t, double> out;
  for (const std::string& text : args.slowdowns) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
      diagnostics.add(at_flag("--slowdown"), fmt::format("'{}' is not DEVICE=FACTOR", text));
      continue;
    }
    const std::int64_t device =
        whole_number(text.substr(0, equals), "--slowdown", 0, 0, diagnostics);
    out[static_cast<std::int32_t>(device)] =
        number(text.substr(equals + 1), "--slowdown", 1, diagnostics);
  }
  return out;
}

void set_listen(const Text& text, executor::LaunchOptions& options, Diagnostics& diagnostics) {
  if (!text) return;
  try {
    const executor::Endpoint endpoint = executor::endpoint_from(*text);
    options.listen = endpoint.host;
    options.port = endpoint.port;
  } catch (const std::runtime_error& error) {
    diagnostics.add(at_flag("--listen"), error.what(), "for example --listen 0.0.0.0:29400");
  }
}

/// Devices, files and folders that the run will need: before it starts, not after it has trained.
void check_places(const executor::LaunchOptions& o, const experiments::LoadedRun& run,
                  const ir::ProgramHeader& header, Diagnostics& diagnostics) {
  for (const auto& [device, factor] : o.settings.slowdowns) {
    if (device < run.cluster.size()) continue;
    diagnostics.add(at_flag("--slowdown"),
                    fmt::format("device {} of {}", device, run.cluster.size()));
  }
  if (!o.out.empty()) {
    std::error_code error;
    std::filesystem::create_directories(o.out, error);
    if (error || access(o.out.c_str(), W_OK) != 0) {
      diagnostics.add(at_flag("--out"), fmt::format("cannot write into '{}'", o.out));
    } else if (std::filesystem::exists(std::filesystem::path(o.out) / "generation-1", error)) {
      diagnostics.add(at_flag("--out"),
                      fmt::format("'{}' holds a run of several generations", o.out),
                      "name another folder, or remove it");
    }
  }
  if (o.settings.data.empty() || !o.hosts.empty()) return;
  try {
    executor::make_text_tokens(o.settings.data, o.settings.data_seed, header.model.vocabulary,
                               header.sequence_length);
  } catch (const std::runtime_error& problem) {
    diagnostics.add(at_flag("--data"), problem.what());
  }
}

/// Everything that can be wrong is reported here.
struct Prepared {
  executor::LaunchOptions options;
  std::vector<experiments::LoadedRun> runs;
  std::uint64_t seed = 0;
};

Prepared prepare(const ExecuteArgs& args) {
  Diagnostics diagnostics;
  Prepared out;
  executor::LaunchOptions& o = out.options;
  out.seed = static_cast<std::uint64_t>(whole_number(args.seed, "--seed", 0, 0, diagnostics));
  o.settings = settings_of(args, out.seed, diagnostics);
  o.hosts = hosts_of(args.hosts, diagnostics);
  o.ssh = args.ssh;
  if (args.ssh && !args.hosts) diagnostics.add(at_flag("--ssh"), "no --hosts are named");
  o.advertise = args.advertise.value_or("");
  set_listen(args.listen, o, diagnostics);
  o.out = args.out.value_or("");
  o.settings.slowdowns = slowdowns_of(args, diagnostics);
  if (args.plan.empty() == !args.planner) {
    diagnostics.add(at_flag("PLAN"), args.planner ? "a plan and --planner" : "missing",
                    "a plan file, or --planner NAME");
  }
  if (args.elastic && planners::find_policy(*args.elastic) == nullptr) {
    diagnostics.add(at_flag("--elastic"), fmt::format("unknown policy '{}'", *args.elastic),
                    config::suggest(*args.elastic, planners::policy_names(), "policies"));
  }
  const std::vector<RankAtStep> kills = kills_of(args, diagnostics);
  std::vector<std::string> files;
  std::vector<std::int64_t> steps;
  for (const std::string& text : args.switches) {
    const auto parts = at_step(text, "--switch-to", "PLAN@STEP", diagnostics);
    if (!parts) continue;
    if (parts->second >= o.settings.steps || (!steps.empty() && parts->second <= steps.back())) {
      diagnostics.add(at_flag("--switch-to"),
                      fmt::format("step {} is not between the switch before it and the last step",
                                  parts->second));
    }
    files.push_back(parts->first);
    steps.push_back(parts->second);
  }
  diagnostics.raise();
  JudgeArgs judged;
  judged.seed = args.seed;
  judged.expanded = true;
  out.runs = load_runs(args, judged, files);
  std::vector<ir::Program> programs = lower_all(out.runs, out.seed, diagnostics);
  diagnostics.raise();
  o.settings.faults = faults_of(kills, programs.front(), out.seed, diagnostics);
  for (const executor::FaultInjection& fault : o.settings.faults) {
    if (fault.step > o.settings.steps) {
      diagnostics.add(at_flag("--kill"),
                      fmt::format("step {} of {}", fault.step, o.settings.steps));
    }
  }
  check_places(o, out.runs.front(), programs.front().header, diagnostics);
  int slots = out.runs.front().cluster.size();
  if (!o.hosts.empty()) {
    slots = 0;
    for (const executor::HostSlots& host : o.hosts) slots += host.slots;
    check_devices(programs, slots, diagnostics);
  }
  diagnostics.raise();
  for (int d = 0; d < std::min(slots, out.runs.front().cluster.size()); ++d) {
    o.devices.push_back({d});
  }
  o.first = {std::move(programs.front()), args.planner ? *args.planner : args.plan};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    o.switches.push_back({steps[i], {std::move(programs[i + 1]), files[i]}});
  }
  return out;
}

int status_of(const LaunchReport& report) {
  switch (report.result) {
    case LaunchReport::Result::completed:
      for (const executor::StepLine& step : report.steps) {
        if (std::isfinite(step.loss)) continue;
        fmt::print(stderr, "orrery: the loss is not finite from step {} on\n", step.step);
        return 1;
      }
      return 0;
    case LaunchReport::Result::interrupted:
      fmt::print(stderr, "orrery: interrupted after {} steps; what was logged is kept\n",
                 report.steps.size());
      return kInterrupted;
    case LaunchReport::Result::failed:
      break;
  }
  fmt::print(stderr, "orrery: {}\n", report.problem);
  return 1;
}

}  // namespace

int execute(const ExecuteArgs& args) {
  Prepared prepared = prepare(args);
  executor::LaunchOptions& options = prepared.options;
  std::unique_ptr<PlanningProcess> planning;
  if (args.elastic) {
    const PolicyQuestion question{*args.elastic, prepared.seed, options.settings.checkpoint_every,
                                  !options.settings.cloud_checkpoints.empty()};
    if (!args.json) print(fmt::format("preparing policy {}\n", *args.elastic));
    flush();
    planning = std::make_unique<PlanningProcess>(prepared.runs.front(), question);
    options.next_program = [&planning](const executor::LostDevices& lost) {
      return planning->ask(lost);
    };
  }
  std::mutex mutex;  // The agent's thread may speak, too.
  if (!args.json) print(job_line(prepared.runs.front()));
  if (!args.quiet && !args.json) {
    options.on_step = [&mutex](const executor::StepLine& line) {
      const std::lock_guard lock(mutex);
      print(step_text(line));
      flush();
    };
  }
  options.on_message = [&mutex](const std::string& line) {
    const std::lock_guard lock(mutex);
    fmt::print(stderr, "orrery: {}\n", line);
  };
  options.interrupted = &interrupted;
  signal(SIGINT, on_interrupt);
  signal(SIGTERM, on_interrupt);
  const LaunchReport report = executor::launch(std::move(options));
  print(args.json ? launch_json(report) : launch_text(report));
  return status_of(report);
}

int execute(const ExecuteAgentArgs& args) {
  const char* token = std::getenv("ORRERY_TOKEN");
  Diagnostics diagnostics;
  if (token == nullptr || *token == '\0') {
    diagnostics.add(at_flag("ORRERY_TOKEN"), "is not set", "the launcher prints it");
  }
  executor::AgentOptions options;
  try {
    options.store = executor::endpoint_from(args.store);
  } catch (const std::runtime_error& error) {
    diagnostics.add(at_flag("--store"), error.what());
  }
  diagnostics.raise();
  options.token = token;
  options.node = args.node;
  options.address = args.address.value_or(args.node);
  options.executable = executor::own_executable();
  options.arguments = {"execute-rank"};
  options.interrupted = &interrupted;
  signal(SIGINT, on_interrupt);
  signal(SIGTERM, on_interrupt);
  executor::run_agent(options);
  return interrupted ? kInterrupted : 0;
}

}  // namespace orrery::tools
