/// orrery execute: a plan run for real, by one process for each device; orrery execute-agent: the
/// helper on other machines.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>

#include "executor/launcher/agent.h"
#include "executor/launcher/launcher.h"
#include "executor/launcher/rank.h"
#include "executor/net/transport.h"
#include "executor/netlab/namespaces.h"
#include "models/base/subprocess.h"
#include "models/config/document.h"
#include "planners/recovery/catalog.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/output.h"
#include "tools/commands/execute_checks.h"
#include "tools/commands/execute_job.h"
#include "tools/commands/execute_netlab.h"
#include "tools/commands/execute_program.h"
#include "tools/commands/execute_recovery.h"
#include "tools/commands/execute_report.h"
#include "tools/commands/execute_settings.h"
#include "tools/commands/execute_threads.h"
#include "tools/commands/inputs.h"
#include "tools/commands/interrupt.h"
#include "tools/commands/run_inputs.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

/// Starts ranks on this machine for a launcher on another one.
struct ExecuteAgentSettings {
  std::string store;
  std::string node;
  Text address;
  std::int64_t wait = 60;  ///< Seconds that it looks for its launcher.
  Text network_namespace;  ///< To enter first.
};

void describe(config::Visitor& v, ExecuteAgentSettings& settings) {
  v.required("store", settings.store, "HOST:PORT that the launcher printed");
  v.required("node", settings.node, "this machine's name in the launcher's --hosts");
  v.optional("address", settings.address, "that its ranks listen on; default: the node's name");
  v.optional("wait", settings.wait, "seconds to look for the launcher; default: 60");
  v.optional("namespace", settings.network_namespace, "network namespace to enter first");
  v.at_least("wait", settings.wait, std::int64_t{1});
}

using config::Diagnostics;
using executor::LaunchReport;

/// Exit code when nodes lack what the flags name.
constexpr int kNodesRefused = 2;
/// Seconds between words about a policy that is being prepared.
constexpr int kWordEvery = 5;

/// The first one is the plan to begin with, then those to switch to.
std::vector<experiments::LoadedRun> load_runs(const ExecuteSettings& args,
                                              const ExecutedJob& executed,
                                              const JudgeSettings& judged,
                                              const std::vector<std::string>& switches) {
  std::vector<std::string> files = switches;
  const auto complete = [&executed](models::Job& job) { executed.complete(job); };
  if (!args.planner) {
    files.insert(files.begin(), args.plan);
    return load_plans(files, executed.args, judged, complete);
  }
  Diagnostics diagnostics;
  const models::Library library = open_library(diagnostics);
  JobSettings job = executed.args;
  job.set_default("global_batch", kDefaultBatch);
  job.set_default("sequence_length", kDefaultLength);
  experiments::RunSpec spec = make_spec(job, judged, {}, diagnostics);
  complete(spec.job);
  spec.collapsed = true;
  spec.planner = experiments::PlannerChoice{{*args.planner, at_flag("--planner")}, {}, {}};
  check_names(spec, library, diagnostics);
  if (!diagnostics.empty()) experiments::check_planner(*spec.planner, diagnostics);
  diagnostics.raise();
  experiments::LoadedRun run = load(spec, library, diagnostics);
  diagnostics.raise();
  const std::vector<experiments::RunReport> reports = run_tasks({{*args.planner, run, {}}});
  if (was_interrupted()) interrupted = true;
  if (!reports.front().plan) {
    throw std::runtime_error(fmt::format(
        "{} finds no plan: {}", *args.planner,
        reports.front().infeasible ? infeasible_text(*reports.front().infeasible) : ""));
  }
  run.plan = *reports.front().plan;
  std::vector<experiments::LoadedRun> runs = load_plans(files, job, judged, complete);
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

/// Everything that can be wrong is reported here.
struct PreparedExecution {
  executor::LaunchOptions options;
  std::vector<experiments::LoadedRun> runs;
  std::uint64_t seed = 0;
  std::optional<executor::NetlabSpec> lab;  ///< With --netlab.
  ThreadPlacement placement;
  std::vector<std::string> notes;  ///< What the user may not expect, a line each.
};

PreparedExecution prepare(const ExecuteSettings& args, Diagnostics& diagnostics) {
  PreparedExecution out;
  executor::LaunchOptions& o = out.options;
  out.seed = static_cast<std::uint64_t>(args.seed);
  o.settings = settings_of(args, out.seed, diagnostics);
  o.hosts = hosts_of(args.hosts, diagnostics);
  o.ssh = args.ssh;
  if (args.netlab && (args.hosts || args.listen || args.advertise)) {
    diagnostics.add(at_flag("--netlab"), "names the hosts itself",
                    "without --hosts, --listen and --advertise");
  }
  if (args.ssh && !args.hosts) diagnostics.add(at_flag("--ssh"), "no --hosts are named");
  if (args.advertise && !args.hosts && !args.netlab) {
    diagnostics.add(at_flag("--advertise"), "no --hosts are named");
  }
  out.placement = thread_placement(args, diagnostics);
  check_dtype(args, o.settings.precision, diagnostics);
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
                    planners::unknown_policy_hint(*args.elastic));
  }
  const std::vector<KillRequest> kills = kills_of(args, diagnostics);
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
  JudgeSettings judged;
  judged.seed = static_cast<std::int64_t>(out.seed);
  judged.expanded = true;
  std::vector<std::string> all = files;
  if (!args.planner) all.push_back(args.plan);
  const ExecutedJob executed = executed_job(args, o.settings.precision, all);
  if (!executed.note.empty()) out.notes.push_back(executed.note);
  out.runs = load_runs(args, executed, judged, files);
  std::vector<ir::Program> programs = lower_all(out.runs, out.seed, diagnostics);
  diagnostics.raise();
  o.settings.faults = faults_of(kills, steps, programs, out.seed, diagnostics);
  for (const executor::FaultInjection& fault : o.settings.faults) {
    if (fault.step > o.settings.steps) {
      diagnostics.add(at_flag("--kill"),
                      fmt::format("step {} of {}", fault.step, o.settings.steps));
    }
  }
  check_places(o, out.runs.front(), programs.front().header, diagnostics);
  check_listen(o, diagnostics);
  set_shares(out.placement, programs.front(), out.runs.front().cluster.size(), diagnostics);
  if (args.netlab) out.lab = netlab_for_run(out.runs.front().cluster, diagnostics);
  int slots = out.runs.front().cluster.size();
  if (!o.hosts.empty()) {
    slots = 0;
    for (const executor::HostSlots& host : o.hosts) slots += host.slots;
    check_devices(programs, slots, out.runs.front().cluster.size(), diagnostics);
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
    case LaunchReport::Result::refused:
      fmt::print(stderr, "orrery: nothing was started: {}\n", report.problem);
      return kNodesRefused;
    case LaunchReport::Result::failed:
      break;
  }
  fmt::print(stderr, "orrery: {}\n", report.problem);
  return 1;
}

/// The policy, ready to answer. Says now and then that it is being prepared: some simulate many
/// plans first.
std::unique_ptr<PlanningProcess> prepare_policy(const ExecuteSettings& args,
                                                const PreparedExecution& prepared) {
  const executor::RunSettings& settings = prepared.options.settings;
  std::vector<PlanSwitch> switches;
  for (std::size_t i = 0; i < prepared.options.switches.size(); ++i) {
    const std::optional<ir::Plan>& plan = prepared.runs[i + 1].plan;
    switches.push_back(
        {prepared.options.switches[i].step, std::make_shared<const ir::Plan>(*plan)});
  }
  const PolicyQuestion question{*args.elastic,
                                prepared.seed,
                                settings.checkpoint_every,
                                !settings.local_checkpoints.empty(),
                                !settings.cloud_checkpoints.empty(),
                                prepared.options.out,
                                wanted_losses(prepared.options),
                                prepared.options.devices,
                                std::move(switches)};
  if (!args.json) print(fmt::format("preparing policy {}\n", *args.elastic));
  if (const std::string note = assumed_storage(prepared.runs.front().cluster, question);
      !note.empty()) {
    fmt::print(stderr, "orrery: {}\n", note);
  }
  flush();
  const auto waits = [&](int seconds) {
    if (seconds > 0 && seconds % kWordEvery == 0) {
      fmt::print(stderr, "orrery: preparing policy {}: {} s\n", *args.elastic, seconds);
    }
    return !interrupted;
  };
  try {
    return std::make_unique<PlanningProcess>(prepared.runs.front(), question, waits);
  } catch (const PolicyRefuses& refusal) {
    Diagnostics diagnostics;
    const std::string why = refusal.what();
    if (refusal.of_loss) diagnostics.add(at_flag("--kill"), why, "orrery list policies");
    diagnostics.raise();
    const bool lacks_storage = why.find("object storage") != std::string::npos;
    diagnostics.add(at_flag("--elastic"), fmt::format("{}: {}", *args.elastic, why),
                    lacks_storage ? "--cloud FOLDER (with --checkpoint-every) counts as such, and "
                                    "so does `storage:` in the cluster file"
                                  : "orrery list policies");
    diagnostics.raise();
    throw;
  }
}

/// In the lab, if there is one. A port that is taken is a wrong --listen.
LaunchReport launch_in(const ExecuteLab* lab, executor::LaunchOptions options) {
  try {
    return lab != nullptr ? lab->launch(std::move(options)) : executor::launch(std::move(options));
  } catch (const executor::TransportError& error) {
    if (error.kind() != executor::TransportError::Kind::local) throw;
    Diagnostics diagnostics;
    diagnostics.add(at_flag("--listen"), error.what(), kTakenPort);
    diagnostics.raise();
    throw;
  }
}

}  // namespace

void describe(config::Visitor& v, ExecuteSettings& settings) {
  v.optional("plan", settings.plan,
             "plan file, which brings its cluster, model and job where it lies among a run's "
             "inputs; or let --planner make one",
             {.positional = true});
  v.optional("planner", settings.planner, "make the plan with this planner", {.letter = 'p'});
  v.optional("steps", settings.steps, "optimizer steps; default: 20");
  v.optional("backend", settings.backend, "where passes are computed: cpu (default) or cuda");
  v.optional("library", settings.library, "of the cpu back end: eigen or openblas");
  v.optional("transport", settings.transport, "how ranks talk: tcp (default) or nccl");
  v.optional("precision", settings.precision,
             "fp32 (default), fp64 or, with cuda, bf16; the job's dtype follows it");
  v.optional("data", settings.data, "train on the bytes of this file; default: synthetic tokens");
  v.optional("learning_rate", settings.learning_rate, "of Adam or SGD; default: 0.001");
  v.optional("seed", settings.seed, "of initial weights, data and injected faults; default: 0");
  v.optional("out", settings.out, "new folder for run logs, timelines and losses.csv",
             {.letter = 'o'});
  v.optional("log_steps", settings.log_steps, "log every op of this many steps; default: 100");
  v.optional("slowdown", settings.slowdowns,
             "DEVICE=FACTOR: its compute takes FACTOR times as long; may be repeated");
  v.optional("ranks", settings.ranks,
             "processes (default), or threads of this one: one plan, no checkpoints, no recovery");
  v.optional("shares", settings.shares,
             "cuda: percent of one card's multiprocessors for each device, for example 0=50,1=25, "
             "or one number for all; ranks are threads then");
  v.optional("quiet", settings.quiet, "no line for each step", {.letter = 'q'});
  v.optional("json", settings.json, "print one JSON document instead of tables");
  v.section("Machines");
  v.optional("hosts", settings.hosts,
             "a:4,b:8: device 0-3 on a, 4-11 on b; default: all on this machine");
  v.optional("ssh", settings.ssh, "start the agents of the hosts by ssh, instead of printing how");
  v.optional("netlab", settings.netlab,
             "emulate the cluster's nodes and network on this machine, for this run");
  v.optional("listen", settings.listen,
             "ADDRESS:PORT of the store; default: loopback, with --hosts all addresses, any port");
  v.optional("advertise", settings.advertise,
             "this machine's address for hosts; default: its name");
  v.section("Checkpoints and failures");
  v.optional("checkpoint_every", settings.checkpoint_every,
             "steps between checkpoints; default: never");
  v.optional("checkpoints", settings.checkpoints, "folder for checkpoints on each node");
  v.optional("cloud", settings.cloud, "folder for checkpoints that all nodes see");
  v.optional("prune_checkpoints", settings.prune_checkpoints,
             "remove checkpoints of earlier runs from both folders first");
  v.optional("elastic", settings.elastic,
             "recovery policy that says how to go on without lost devices (orrery list policies)");
  v.optional("silence", settings.silence,
             "seconds (1 to 3600) after which a rank that says nothing is lost; default: 10");
  v.optional(
      "kill", settings.kills,
      "RANK@STEP: that rank (of the plan that --switch-to has brought by then) kills itself at an "
      "op of that step, or with :before_update or :after_update there; may be repeated");
  v.optional("switch_to", settings.switches,
             "PLAN@STEP: goes over to another plan after that step; may be repeated");
  describe(v, settings.job, BatchDefault::of_the_plan);
  v.at_least("steps", settings.steps, std::int64_t{1});
  v.not_negative("seed", settings.seed);
  if (settings.log_steps) v.not_negative("log_steps", *settings.log_steps);
  if (settings.checkpoint_every) {
    v.at_least("checkpoint_every", *settings.checkpoint_every, std::int64_t{1});
  }
}

namespace {

int run(const ExecuteSettings& given, Diagnostics& problems) {
  ExecuteSettings args = given;
  const std::string taken = take_run_inputs(args);
  PreparedExecution prepared = prepare(args, problems);
  if (!taken.empty()) prepared.notes.insert(prepared.notes.begin(), taken);
  executor::LaunchOptions& options = prepared.options;
  signal(SIGINT, on_interrupt);
  signal(SIGTERM, on_interrupt);
  // The terminal is closed: as Ctrl-C, unless somebody (nohup) wants it to be survived.
  if (signal(SIGHUP, on_interrupt) == SIG_IGN) signal(SIGHUP, SIG_IGN);
  std::mutex mutex;  // The agent's thread may speak, too.
  const auto say = [&mutex](const std::string& line) {
    const std::lock_guard lock(mutex);
    fmt::print(stderr, "orrery: {}\n", line);
  };
  std::unique_ptr<PlanningProcess> planning;
  if (args.elastic) {
    planning = prepare_policy(args, prepared);
    options.next_program = [&planning](const executor::LostDevices& lost) {
      return planning->ask(lost, [](int) { return !interrupted; });
    };
  }
  if (interrupted) {
    say("interrupted before the first step");
    return kInterrupted;
  }
  std::unique_ptr<ExecuteLab> lab;
  if (prepared.lab) {
    lab = std::make_unique<ExecuteLab>(*prepared.lab, say);
    options.hosts = lab->hosts();
    options.settings.slowdowns.merge(lab->slowdowns());
  }
  executor::ThreadRanks ranks =
      make_thread_ranks(prepared.placement, options, prepared.runs.front().cluster, prepared.notes);
  const OutFolder folder(options.out);
  if (!options.out.empty()) {
    const char* network = lab ? "netlab" : options.hosts.empty() ? "loopback" : "hosts";
    write_run_inputs(options.out, prepared.runs, options.settings,
                     {network, lab ? lab->slowdowns() : std::map<std::int32_t, double>(),
                      prepared.placement.threads, prepared.placement.shares});
  }
  if (!args.json) print(job_line(prepared.runs.front()));
  for (const std::string& note : prepared.notes) say(note);
  // Parts of a GPU are said with their shares.
  const std::string note = prepared.placement.shares.empty() ? crowding(options) : std::string();
  if (!note.empty()) say(note);
  if (!args.quiet && !args.json) {
    options.on_step = [&mutex](const executor::StepLine& line) {
      const std::lock_guard lock(mutex);
      print(step_text(line));
      flush();
    };
  }
  options.on_message = say;
  options.interrupted = &interrupted;
  LaunchReport report;
  try {
    report = prepared.placement.threads
                 ? executor::launch_on_threads(std::move(options), std::move(ranks))
                 : launch_in(lab.get(), std::move(options));
  } catch (const config::ConfigError&) {
    folder.undo();
    throw;
  }
  if (report.result == LaunchReport::Result::refused) folder.undo();
  lab.reset();
  print(args.json ? launch_json(report) : launch_text(report));
  return status_of(report);
}

}  // namespace

extern const Command kExecute;
const Command kExecute = printing_command<ExecuteSettings, run>(
    "execute", "Run a plan for real: one process for each device",
    "execute experiments/executor/two_replicas.yaml --cluster a100_8 --model "
    "experiments/executor/tiny_llama.yaml --sequence-length 32 --steps 5",
    "Exit code 1: the run failed. 130: interrupted; logs are kept.");

namespace {

int run(const ExecuteAgentSettings& args, Diagnostics& diagnostics) {
  const char* token = std::getenv("ORRERY_TOKEN");
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
  options.wait = std::chrono::seconds(args.wait);
  options.token = token;
  options.node = args.node;
  options.address = args.address.value_or(args.node);
  options.executable = own_executable();
  options.arguments = {"execute-rank"};
  options.interrupted = &interrupted;
  if (!args.network_namespace) {  // Else a launcher of this machine has started it, and speaks.
    options.on_joined = [&options](const std::string& address) {
      fmt::print(stderr, "orrery: joined the run of {}:{} as {}; ranks will listen on {}\n",
                 options.store.host, options.store.port, options.node, address);
    };
  }
  // Agents that a launcher started inherit it ignored: Ctrl-C is the launcher's, who then ends
  // them.
  if (signal(SIGINT, on_interrupt) == SIG_IGN) signal(SIGINT, SIG_IGN);
  signal(SIGTERM, on_interrupt);
  if (args.network_namespace) executor::enter_namespace(*args.network_namespace);
  try {
    executor::run_agent(options);
  } catch (const executor::AgentRefused& refusal) {
    diagnostics.add(at_flag("--node"), refusal.what());
    diagnostics.raise();
  }
  return interrupted ? kInterrupted : 0;
}

}  // namespace

extern const Command kExecuteAgent;
const Command kExecuteAgent = printing_command<ExecuteAgentSettings, run>(
    "execute-agent", "Start ranks on this machine for a launcher on another one",
    "execute-agent --store head:4321 --node b", "The run's token is read from ORRERY_TOKEN.");

}  // namespace orrery::tools
