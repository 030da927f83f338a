#include "experiments/execution/execute.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "executor/cuda/backend.h"
#include "executor/cuda/rank_variables.h"
#include "executor/engine/data.h"
#include "executor/launcher/paths.h"
#include "executor/net/socket.h"
#include "executor/net/transport.h"
#include "experiments/execution/netlab.h"
#include "experiments/execution/policy_process.h"
#include "experiments/execution/rank_job.h"
#include "experiments/execution/run_inputs.h"
#include "experiments/study/exports.h"
#include "experiments/study/run_tasks.h"
#include "models/base/rng.h"
#include "models/config/document.h"
#include "models/ir/names.h"
#include "planners/recovery/catalog.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;
using config::Diagnostics;
using executor::LaunchReport;

/// Silence between these is neither a rank that computes nor a run that hangs. [choice]
constexpr double kLeastSilence = 1;
constexpr double kMostSilence = 3600;
/// Seconds between words about a policy that is being prepared.
constexpr int kWordEvery = 5;
/// Hint where the port of --listen cannot be had.
constexpr const char* kTakenPort = "another launcher may run: name another port, or none";
constexpr const char* kShareExample = "for example --shares 0=50,1=25,2=25, or one number for all";

/// "left@right": the right part as a whole number of at least 1. `shape` names both.
bool read_at_step(const std::string& text, const char* shape, std::string& left, std::int64_t& step,
                  std::string& error) {
  const std::size_t at = text.rfind('@');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    error = fmt::format("'{}' is not {}", text, shape);
    return false;
  }
  left = text.substr(0, at);
  return read_whole(text.substr(at + 1), 1, step, error);
}

/// "" up to the whole card.
std::string too_much(std::size_t devices, std::int64_t percent) {
  if (percent <= 100) return "";
  return fmt::format("{} devices have {} % of the card together", devices, percent);
}
constexpr const char* kDisjoint = "100 at most: parts of a card do not overlap";

/// Settings that contradict each other; each problem is reported at one that is given.
void check_together(config::Visitor& v, const ExecuteSettings& s) {
  if (s.checkpoint_every && !s.checkpoints && !s.cloud) {
    v.problem("checkpoint_every", "no folder is named",
              "--checkpoints FOLDER, --cloud FOLDER or both");
  }
  if (!s.checkpoint_every && (s.checkpoints || s.cloud)) {
    v.problem(s.checkpoints ? "checkpoints" : "cloud", "no interval is given",
              "--checkpoint-every STEPS");
  }
  if (!s.checkpoint_every && s.prune_checkpoints) {
    v.problem("prune_checkpoints", "this run has no checkpoints",
              "--checkpoint-every STEPS with --checkpoints or --cloud");
  }
  for (const auto& [key, path] :
       {std::pair("data", &s.data), std::pair("checkpoints", &s.checkpoints),
        std::pair("cloud", &s.cloud)}) {
    if (*path && (*path)->find('\n') != std::string::npos) {
      v.problem(key, "a path with a line break");
    }
  }
  for (const sim::Straggler& slow : s.slowdowns) {
    if (slow.slowdown >= 1) continue;
    v.problem("slowdown",
              fmt::format("{} is below 1: no device can be made faster", slow.slowdown));
  }
  std::int64_t before = 0;
  for (const SwitchRequest& to : s.switches) {
    if (to.step >= s.steps || to.step <= before) {
      v.problem(
          "switch_to",
          fmt::format("step {} is not between the switch before it and the last step", to.step));
    }
    before = to.step;
  }
  for (const KillRequest& kill : s.kills) {
    if (kill.step > s.steps) v.problem("kill", fmt::format("step {} of {}", kill.step, s.steps));
  }
  const auto dtype = s.job.changes.find("dtype");
  if (dtype != s.job.changes.end()) {
    const std::string own = executor::name_of(s.precision);
    const auto names = ir::enum_names(ir::Dtype{});
    const bool known = std::any_of(names.begin(), names.end(), [&](const auto& one) {
      return dtype->second.text == one.second;
    });
    if (known && dtype->second.text != own) {  // Another one is reported where the job is read.
      v.problem("dtype", fmt::format("{}, where the ranks compute in {}", dtype->second.text, own),
                "leave it out: it follows --precision");
    }
  }
  if (s.elastic && planners::find_policy(*s.elastic) == nullptr) {
    v.problem("elastic", fmt::format("unknown policy '{}'", *s.elastic),
              planners::unknown_policy_hint(*s.elastic));
  }
}

/// What a run on threads has not, and why; and what shares need.
void check_threads(config::Visitor& v, const ExecuteSettings& s) {
  if (!s.shares.empty()) {
    if (s.ranks == RankKind::processes) {
      v.problem("ranks", "parts of one card are disjoint only in one process",
                "leave it out: --shares means --ranks threads");
    }
    if (s.backend != BackendKind::cuda) {
      v.problem("shares", "shares are of a GPU's multiprocessors",
                "--backend cuda; or --slowdown DEVICE=FACTOR on the cpu");
    }
    std::set<std::int32_t> named;
    std::int64_t sum = 0;
    for (const CardShare& share : s.shares) {
      if (!share.device && s.shares.size() > 1) {
        v.problem("shares", fmt::format("'{}' is not DEVICE=PERCENT", share.percent),
                  kShareExample);
      } else if (share.device && !named.insert(*share.device).second) {
        v.problem("shares", fmt::format("device {} is named twice", *share.device));
      }
      sum += share.percent;
    }
    if (const std::string what = too_much(s.shares.size(), sum); !what.empty()) {
      v.problem("shares", what, kDisjoint);
    }
  }
  if (!s.on_threads()) return;
  const auto refuse = [&](bool given, const char* key, const char* why) {
    if (!given) return;
    v.problem(key, fmt::format("ranks are threads: {}", why),
              s.shares.empty() ? "--ranks processes" : "leave it out with --shares");
  };
  const char* one_process = "all are in one process of this machine";
  refuse(!s.machines.hosts.empty(), "hosts", one_process);
  refuse(s.machines.netlab, "netlab", one_process);
  refuse(s.machines.listen.has_value(), "listen", "there is no store that others could reach");
  refuse(s.transport == TransportKind::nccl, "transport", "nccl wants a process for each");
  refuse(s.elastic.has_value(), "elastic", "what ends one of them ends all");
  refuse(!s.kills.empty(), "kill", "what kills one of them kills all");
  refuse(!s.switches.empty(), "switch_to", "they run one plan");
  refuse(s.checkpoint_every.has_value(), "checkpoint_every", "they write no checkpoints");
}

/// What the ranks are told, without faults.
executor::RunSettings run_settings(const ExecuteSettings& s, Diagnostics& diagnostics) {
  executor::RunSettings out = compute_settings(s.backend, s.library, s.precision, s.transport,
                                               !s.machines.hosts.empty(), diagnostics);
  out.steps = s.steps;
  out.learning_rate = s.learning_rate;
  out.data = s.data.value_or("");
  out.data_seed = static_cast<std::uint64_t>(s.seed);
  out.log_steps = s.log_steps;
  out.checkpoint_every = s.checkpoint_every.value_or(0);
  out.local_checkpoints = s.checkpoints.value_or("");
  out.cloud_checkpoints = s.cloud.value_or("");
  out.elastic = s.elastic.has_value();
  out.prune_checkpoints = s.prune_checkpoints;
  out.silence = std::chrono::milliseconds(
      static_cast<std::int64_t>(1e3 * std::clamp(s.silence, kLeastSilence, kMostSilence)));
  out.heartbeat = std::min(out.heartbeat, out.silence / 4);
  for (const sim::Straggler& slow : s.slowdowns) out.slowdowns[slow.device.value] = slow.slowdown;
  return out;
}

/// The first one is the plan to begin with, then those to switch to.
std::vector<LoadedRun> load_runs(const ExecuteSettings& settings, const RankJob& job,
                                 const Call& call) {
  JudgeSettings judged;
  judged.seed = settings.seed;
  judged.expanded = true;
  const auto complete = [&job](models::Job& one) { job.complete(one); };
  std::vector<std::string> files;
  for (const SwitchRequest& to : settings.switches) files.push_back(to.plan);
  if (!settings.planner) {
    files.insert(files.begin(), settings.plan);
    return load_plans(files, job.settings, judged, complete);
  }
  Diagnostics diagnostics;
  const models::Library library = open_library(diagnostics);
  JobSettings planned = job.settings;
  planned.defaults = JobDefaults::fixed;
  RunSpec spec = make_spec(planned, judged, {}, diagnostics);
  complete(spec.job);
  spec.collapsed = true;
  spec.planner = PlannerChoice{{*settings.planner, at_setting("planner")}, {}, {}};
  check_names(spec, library, diagnostics);
  if (!diagnostics.empty()) check_planner(*spec.planner, diagnostics);
  diagnostics.raise();
  LoadedRun run = load(spec, library, diagnostics);
  diagnostics.raise();
  const std::vector<RunReport> reports = run_tasks({{*settings.planner, run, {}}}, call);
  const RunReport& report = reports.front();
  if (!report.plan) {
    throw std::runtime_error(fmt::format("{} finds {}", *settings.planner, no_plan_text(report)));
  }
  run.plan = *report.plan;
  std::vector<LoadedRun> runs = load_plans(files, planned, judged, complete);
  runs.insert(runs.begin(), std::move(run));
  return runs;
}

/// Programs of all plans; problems at the place of each plan.
std::vector<ir::Program> lower_all(const std::vector<LoadedRun>& runs, std::uint64_t seed,
                                   Diagnostics& diagnostics) {
  std::vector<ir::Program> programs;
  for (const LoadedRun& run : runs) {
    const config::Position at =
        run.spec.plan ? config::Position{run.spec.plan->value, 0, 0} : at_setting("planner");
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

/// On the devices of the ranks of the program that runs in that step: programs[0], and after the
/// i-th switch programs[i + 1].
std::vector<executor::FaultInjection> faults_of(const ExecuteSettings& settings,
                                                const std::vector<ir::Program>& programs,
                                                Diagnostics& diagnostics) {
  std::vector<executor::FaultInjection> faults;
  for (const KillRequest& kill : settings.kills) {
    const auto before = std::count_if(settings.switches.begin(), settings.switches.end(),
                                      [&](const SwitchRequest& to) { return to.step < kill.step; });
    const ir::Program& program = programs[before];
    const auto ranks = static_cast<std::int64_t>(program.ranks.size());
    if (kill.rank >= ranks) {
      diagnostics.add(at_setting("kill"), fmt::format("rank {} of {}", kill.rank, ranks),
                      fmt::format("0 to {}", ranks - 1));
      continue;
    }
    executor::FaultInjection fault;
    fault.device = program.ranks[kill.rank].device.value;
    fault.step = kill.step;
    fault.seed = Rng(static_cast<std::uint64_t>(settings.seed)).fork(faults.size()).fork(7)();
    fault.point = kill.point;
    faults.push_back(fault);
  }
  return faults;
}

/// The output folder of a run that may still be refused.
class OutFolder {
 public:
  /// Notes what is not there. "": no folder.
  explicit OutFolder(const std::string& out) {
    if (out.empty()) return;
    const auto note = [this](const fs::path& path) {
      std::error_code error;
      if (fs::exists(path, error)) return false;
      missing_.push_back(path.string());
      return true;
    };
    note(fs::path(out) / "losses.csv");
    note(fs::path(out) / "inputs");
    for (fs::path at = fs::absolute(out); at.has_relative_path(); at = at.parent_path()) {
      if (at.has_filename() && !note(at)) break;
    }
  }
  /// Nothing was started: takes away what of it is there now, inputs and an empty losses.csv.
  void undo() const {
    std::error_code error;  // What cannot be removed stays.
    for (const std::string& path : missing_) {
      if (fs::path(path).filename() == "inputs") {
        fs::remove_all(path, error);
      } else {
        fs::remove(path, error);  // A folder only if it is empty.
      }
    }
  }

 private:
  std::vector<std::string> missing_;  ///< What is not there yet, innermost first.
};

void add_folder_taken(const std::string& out, Diagnostics& diagnostics) {
  diagnostics.add(at_setting("out"), fmt::format("another run writes into '{}'", out),
                  "name another folder");
}

void check_out(const std::string& out, Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  check_out_folder("out", out, diagnostics);
  if (diagnostics.problems().size() != before) return;
  std::error_code error;
  if (executor::is_written(out)) {
    add_folder_taken(out, diagnostics);
  } else if (fs::exists(fs::path(out) / "generation-0", error)) {
    diagnostics.add(at_setting("out"), fmt::format("'{}' holds a run", out),
                    "name another folder, or remove it");
  }
}

/// Whether devices, files, folders and the port are there that the run will need: looked up before
/// it starts, not after it has trained. Files of named hosts are for their agents.
void check_places(const executor::LaunchOptions& o, const LoadedRun& run,
                  const std::vector<ir::Program>& programs, Diagnostics& diagnostics) {
  const int devices = run.cluster.size();
  for (const auto& [device, factor] : o.settings.slowdowns) {
    if (device < devices) continue;
    diagnostics.add(at_setting("slowdown"), fmt::format("device {} of {}", device, devices),
                    fmt::format("0 to {}", devices - 1));
  }
  const ir::ProgramHeader& header = programs.front().header;
  if (!o.out.empty()) check_out(o.out, diagnostics);
  if (!o.settings.data.empty() && header.model.vocabulary < executor::kLeastTextVocabulary) {
    diagnostics.add(at_setting("data"),
                    fmt::format("bytes need a vocabulary of {}, the model has {}",
                                executor::kLeastTextVocabulary, header.model.vocabulary));
  }
  if (!o.listen.empty()) {
    try {
      const executor::Listener listener(o.listen, o.port);
    } catch (const executor::TransportError& error) {
      diagnostics.add(at_setting("listen"), error.what(), kTakenPort);
    }
  }
  if (!o.hosts.empty()) return;
  const OutFolder local(o.settings.local_checkpoints), cloud(o.settings.cloud_checkpoints);
  executor::RunSettings settings = o.settings;
  settings.least_data_bytes = header.sequence_length + 1;
  for (const executor::PathProblem& path : executor::find_path_problems(settings)) {
    diagnostics.add(at_setting(path.setting), path.problem);
  }
  cloud.undo();  // what a run needs it makes again
  local.undo();
}

/// The hosts have all devices that the programs need, and no more than the cluster.
void check_hosts(int slots, int cluster, const std::vector<ir::Program>& programs,
                 Diagnostics& diagnostics) {
  if (slots > cluster) {
    diagnostics.add(at_setting("hosts"),
                    fmt::format("the hosts have {} devices, the cluster has {}", slots, cluster));
  }
  for (const ir::Program& program : programs) {
    for (const ir::Rank& rank : program.ranks) {
      if (rank.device.value < slots) continue;
      diagnostics.add(at_setting("hosts"),
                      fmt::format("the hosts have {} devices, the plan needs device {}", slots,
                                  rank.device.value));
      return;
    }
  }
}

/// A note for ranks on this machine that must share its cores; empty: each has one of its own.
std::string crowding(const executor::LaunchOptions& o) {
  const std::size_t ranks = o.first.program.ranks.size();
  const unsigned cores = std::thread::hardware_concurrency();
  if (!o.hosts.empty()) return "";
  if (o.settings.backend == "cuda") {
    std::vector<int> devices;
    for (const ir::Rank& rank : o.first.program.ranks) devices.push_back(rank.device.value);
    return executor::sharing_note(devices,
                                  static_cast<int>(executor::cuda_status().devices.size()));
  }
  if (o.settings.backend != "cpu" || cores == 0 || ranks <= cores) return "";
  return fmt::format("{0} ranks share {1} cores: step times are not those of {0} devices", ranks,
                     cores);
}

/// A run that can start: everything that can be wrong was reported.
struct PreparedRun {
  executor::LaunchOptions options;
  std::vector<LoadedRun> runs;
  std::optional<executor::NetlabSpec> lab;
  std::map<std::int32_t, std::int64_t> shares;
  std::vector<std::string> notes;  ///< What the user may not expect.
};

PreparedRun prepare(ExecuteSettings settings, const Call& call, Diagnostics diagnostics) {
  PreparedRun out;
  executor::LaunchOptions& o = out.options;
  if (const std::string taken = take_run_inputs(settings.plan, settings.job); !taken.empty()) {
    out.notes.push_back(taken);
  }
  o.settings = run_settings(settings, diagnostics);
  settings.machines.apply(o);
  o.out = settings.out.value_or("");
  if (settings.plan.empty() == !settings.planner) {
    diagnostics.add({"PLAN", 0, 0}, settings.planner ? "a plan and --planner" : "missing",
                    "a plan file, or --planner NAME");
  }
  diagnostics.raise();
  std::vector<std::string> plans;
  if (!settings.planner) plans.push_back(settings.plan);
  for (const SwitchRequest& to : settings.switches) plans.push_back(to.plan);
  const RankJob job = rank_job(settings.job, settings.precision, plans);
  if (!job.note.empty()) out.notes.push_back(job.note);
  out.runs = load_runs(settings, job, call);
  const models::Cluster& cluster = out.runs.front().cluster;
  std::vector<ir::Program> programs = lower_all(out.runs, o.settings.data_seed, diagnostics);
  diagnostics.raise();
  o.settings.faults = faults_of(settings, programs, diagnostics);
  check_places(o, out.runs.front(), programs, diagnostics);
  out.shares = shares_of(settings, programs.front(), cluster.size(), diagnostics);
  if (settings.machines.netlab) out.lab = netlab_for_run(cluster, diagnostics);
  int slots = cluster.size();
  if (!o.hosts.empty()) {
    slots = settings.machines.devices();
    check_hosts(slots, cluster.size(), programs, diagnostics);
  }
  diagnostics.raise();
  for (int d = 0; d < std::min(slots, cluster.size()); ++d) o.devices.push_back({d});
  o.first = {std::move(programs.front()), settings.planner.value_or(settings.plan)};
  for (std::size_t i = 0; i < settings.switches.size(); ++i) {
    const SwitchRequest& to = settings.switches[i];
    o.switches.push_back({to.step, {std::move(programs[i + 1]), to.plan}});
  }
  return out;
}

/// The policy, ready to answer. Says now and then that it is being prepared: some simulate many
/// plans first.
std::unique_ptr<PolicyProcess> prepare_policy(const std::string& policy,
                                              const PreparedRun& prepared, const Call& call) {
  const executor::LaunchOptions& o = prepared.options;
  PolicyQuestion question{.policy = policy,
                          .seed = o.settings.data_seed,
                          .checkpoint_every = o.settings.checkpoint_every,
                          .local = !o.settings.local_checkpoints.empty(),
                          .cloud = !o.settings.cloud_checkpoints.empty(),
                          .out = o.out,
                          .losses = {},
                          .devices = o.devices,
                          .switches = {}};
  for (const executor::FaultInjection& fault : o.settings.faults) {
    question.losses.push_back({{fault.device}, fault.step});
  }
  std::stable_sort(question.losses.begin(), question.losses.end(),
                   [](const WantedLoss& a, const WantedLoss& b) { return a.step < b.step; });
  for (std::size_t i = 0; i < o.switches.size(); ++i) {
    question.switches.push_back(
        {o.switches[i].step, std::make_shared<const ir::Plan>(*prepared.runs[i + 1].plan)});
  }
  call.note(fmt::format("preparing policy {}", policy));
  if (const std::string note = assumed_storage(prepared.runs.front().cluster, question);
      !note.empty()) {
    call.note(note);
  }
  const auto waits = [&](int seconds) {
    if (seconds > 0 && seconds % kWordEvery == 0) {
      call.note(fmt::format("preparing policy {}: {} s", policy, seconds));
    }
    return !call.cancellation.requested();
  };
  try {
    return std::make_unique<PolicyProcess>(prepared.runs.front(), question, waits);
  } catch (const PolicyRefuses& refusal) {
    Diagnostics diagnostics;
    const std::string why = refusal.what();
    if (refusal.of_loss) {
      diagnostics.add(at_setting("kill"), why, "orrery list policies");
    } else {
      const bool lacks_storage = why.find("object storage") != std::string::npos;
      diagnostics.add(at_setting("elastic"), fmt::format("{}: {}", policy, why),
                      lacks_storage
                          ? "--cloud FOLDER (with --checkpoint-every) counts as such, and so does "
                            "`storage:` in the cluster file"
                          : "orrery list policies");
    }
    diagnostics.raise();
    throw;
  }
}

/// "device 1 is a 'H100-80GB 25%' in the cluster file, its share is 50 %"; "": the names agree.
std::string misnamed(const models::Cluster& cluster, DeviceId device, std::int64_t percent) {
  const std::string& type = cluster.gpu(device).name;
  if (!type.ends_with('%') || type.ends_with(executor::type_of_share("", percent))) return "";
  return fmt::format("device {} is a '{}' in the cluster file, its share is {} %", device.value,
                     type, percent);
}

/// The back ends of the ranks: parts of the first GPU. Without shares each rank makes its own.
/// `notes` gets a line about each part, and about GPU types of the cluster file that are named
/// after another share.
executor::ThreadRanks thread_ranks(PreparedRun& prepared) {
  executor::ThreadRanks out;
  if (prepared.shares.empty()) return out;
  Diagnostics diagnostics;
  const executor::CudaDeviceInfo gpu = executor::cuda_status().devices.front();
  std::vector<int> counts;
  for (const ir::Rank& rank : prepared.options.first.program.ranks) {
    const std::int64_t percent = prepared.shares.at(rank.device.value);
    counts.push_back(executor::multiprocessors_of_share(gpu, percent));
    prepared.notes.push_back(fmt::format("device {}: {} of the {} multiprocessors of {} ({} %)",
                                         rank.device.value, counts.back(), gpu.multiprocessors,
                                         gpu.name, percent));
    std::string other = misnamed(prepared.runs.front().cluster, rank.device, percent);
    if (!other.empty()) prepared.notes.push_back(std::move(other));
  }
  // One split for all, so that the parts are disjoint. Each rank takes its own out of it.
  using Parts = std::vector<std::unique_ptr<executor::Backend>>;
  try {
    const auto parts = std::make_shared<Parts>(
        executor::make_green_backends(prepared.options.settings.precision, 0, counts));
    out.backend = [parts](int rank, DeviceId) { return std::move((*parts)[rank]); };
  } catch (const std::runtime_error& error) {
    diagnostics.add(at_setting("shares"), error.what());
  }
  diagnostics.raise();
  return out;
}

/// In the lab, if there is one. A port that is taken is a wrong --listen.
LaunchReport launch_in(const ClusterLab* lab, executor::LaunchOptions options) {
  try {
    return lab != nullptr ? lab->launch(std::move(options)) : executor::launch(std::move(options));
  } catch (const executor::TransportError& error) {
    if (error.kind() != executor::TransportError::Kind::local) throw;
    Diagnostics diagnostics;
    diagnostics.add(at_setting("listen"), error.what(), kTakenPort);
    diagnostics.raise();
    throw;
  }
}

/// The first step whose loss is no finite number.
const executor::StepLine* first_diverged(const LaunchReport& report) {
  for (const executor::StepLine& step : report.steps) {
    if (!std::isfinite(step.loss)) return &step;
  }
  return nullptr;
}

/// What a user must know about how it ended; "": all is well.
std::string ending_of(const LaunchReport& report) {
  switch (report.result) {
    case LaunchReport::Result::completed: {
      const executor::StepLine* diverged = first_diverged(report);
      if (diverged == nullptr) return "";
      return fmt::format("the loss is not finite from step {} on", diverged->step);
    }
    case LaunchReport::Result::interrupted:
      return fmt::format("interrupted after {} steps; what was logged is kept",
                         report.steps.size());
    case LaunchReport::Result::refused:
      return "nothing was started: " + report.problem;
    case LaunchReport::Result::failed:
      break;
  }
  return report.problem;
}

}  // namespace

bool from_scalar(const std::string& text, KillRequest& out, std::string& error) {
  using executor::FaultPoint;
  std::string rest = text;
  out.point = FaultPoint::op;
  for (const FaultPoint point : {FaultPoint::before_update, FaultPoint::after_update}) {
    const std::string ending = std::string(":") + ir::name_of(point);
    if (!text.ends_with(ending)) continue;
    out.point = point;
    rest = text.substr(0, text.size() - ending.size());
  }
  std::string rank;
  return read_at_step(rest, "RANK@STEP, RANK@STEP:before_update or RANK@STEP:after_update", rank,
                      out.step, error) &&
         read_whole(rank, 0, out.rank, error);
}
std::string to_scalar(const KillRequest& kill) {
  const std::string text = fmt::format("{}@{}", kill.rank, kill.step);
  if (kill.point == executor::FaultPoint::op) return text;
  return fmt::format("{}:{}", text, ir::name_of(kill.point));
}

bool from_scalar(const std::string& text, SwitchRequest& out, std::string& error) {
  return read_at_step(text, "PLAN@STEP", out.plan, out.step, error);
}
std::string to_scalar(const SwitchRequest& request) {
  return fmt::format("{}@{}", request.plan, request.step);
}

std::vector<std::pair<RankKind, const char*>> enum_names(RankKind) {
  return {{RankKind::processes, "processes"}, {RankKind::threads, "threads"}};
}

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
             "or one number for all; ranks are threads then",
             {.commas = true});
  v.optional("quiet", settings.quiet, "no line for each step", {.letter = 'q'});
  describe(v, settings.machines);
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
  describe(v, settings.job);
  v.at_least("steps", settings.steps, std::int64_t{1});
  v.not_negative("seed", settings.seed);
  v.not_negative("log_steps", settings.log_steps);
  v.positive("learning_rate", settings.learning_rate);
  v.between("silence", settings.silence, kLeastSilence, kMostSilence);
  if (settings.checkpoint_every) {
    v.at_least("checkpoint_every", *settings.checkpoint_every, std::int64_t{1});
  }
  v.not_empty("shares", settings.shares, "names no share");
  if (!v.reading()) return;
  check_together(v, settings);
  check_threads(v, settings);
}

void describe(config::Visitor& v, ExecuteResult& result) {
  describe(v, static_cast<LaunchReport&>(result));
}

int exit_status(const ExecuteResult& result) {
  switch (result.result) {
    case LaunchReport::Result::completed:
      return first_diverged(result) == nullptr ? 0 : 1;
    case LaunchReport::Result::interrupted:
      return kInterrupted;
    case LaunchReport::Result::refused:
      return 2;
    case LaunchReport::Result::failed:
      break;
  }
  return 1;
}

std::map<std::int32_t, std::int64_t> shares_of(const ExecuteSettings& settings,
                                               const ir::Program& program, int cluster,
                                               Diagnostics& diagnostics) {
  std::map<std::int32_t, std::int64_t> out;
  const config::Position at = at_setting("shares");
  for (const CardShare& share : settings.shares) {
    if (!share.device) {
      for (const ir::Rank& rank : program.ranks) out[rank.device.value] = share.percent;
      continue;
    }
    out[*share.device] = share.percent;
    if (*share.device < cluster) continue;
    diagnostics.add(at, fmt::format("device {} of {}", *share.device, cluster),
                    fmt::format("0 to {}", cluster - 1));
  }
  if (out.empty()) return out;
  std::int64_t sum = 0;
  for (const auto& [device, percent] : out) sum += percent;
  if (const std::string what = too_much(out.size(), sum); !what.empty()) {
    diagnostics.add(at, what, kDisjoint);
  }
  for (const ir::Rank& rank : program.ranks) {
    if (out.contains(rank.device.value)) continue;
    diagnostics.add(at,
                    fmt::format("the plan needs device {}, which has no share", rank.device.value),
                    kShareExample);
  }
  return out;
}

ExecuteResult execute(const ExecuteSettings& settings, const Call& call, Diagnostics problems,
                      const ExecuteHooks& hooks) {
  // A closed terminal is as Ctrl-C, unless somebody (nohup) wants it to be survived.
  const Cancellation::Listener listener(call.cancellation, {SIGINT, SIGTERM, SIGHUP});
  PreparedRun prepared = prepare(settings, call, std::move(problems));
  executor::LaunchOptions& options = prepared.options;
  const auto say = [&](const std::string& line) { call.note(line); };
  std::unique_ptr<PolicyProcess> policy;
  if (settings.elastic && !call.cancellation.requested()) {
    policy = prepare_policy(*settings.elastic, prepared, call);
    options.next_program = [&](const executor::LostDevices& lost) {
      return policy->ask(lost, [&](int) { return !call.cancellation.requested(); });
    };
  }
  if (call.cancellation.requested()) throw Interrupted("interrupted before the first step");
  std::unique_ptr<ClusterLab> lab;
  RunPlacement placement{
      options.hosts.empty() ? kLoopback : "hosts", {}, settings.on_threads(), {}};
  if (prepared.lab) {
    lab = std::make_unique<ClusterLab>(*prepared.lab, say);
    options.hosts = lab->hosts();
    placement.network = "netlab";
    placement.lab_slowdowns = lab_slowdowns(*prepared.lab);
    auto slowdowns = placement.lab_slowdowns;
    options.settings.slowdowns.merge(slowdowns);
  }
  placement.shares.insert(prepared.shares.begin(), prepared.shares.end());
  executor::ThreadRanks ranks = thread_ranks(prepared);
  const OutFolder folder(options.out);
  options.on_claimed = [&, out = options.out, told = options.settings] {
    write_run_inputs(out, prepared.runs, told, placement);
  };
  if (hooks.on_start) hooks.on_start(prepared.runs.front());
  // Parts of a GPU are said with their shares.
  if (prepared.shares.empty()) prepared.notes.push_back(crowding(options));
  for (const std::string& note : prepared.notes) {
    if (!note.empty()) say(note);
  }
  if (!settings.quiet) options.on_step = hooks.on_step;
  options.on_message = say;
  options.interrupted = call.cancellation.flag();
  const std::string folder_name = options.out;
  ExecuteResult result;
  try {
    static_cast<LaunchReport&>(result) =
        settings.on_threads() ? executor::launch_on_threads(std::move(options), std::move(ranks))
                              : launch_in(lab.get(), std::move(options));
  } catch (const config::ConfigError&) {
    folder.undo();
    throw;
  } catch (const executor::FolderTaken&) {
    // Since check_out() looked. What is there is the other run's.
    Diagnostics diagnostics;
    add_folder_taken(folder_name, diagnostics);
    diagnostics.raise();
  }
  if (result.result == LaunchReport::Result::refused) folder.undo();
  lab.reset();
  if (const std::string ending = ending_of(result); !ending.empty()) say(ending);
  return result;
}

}  // namespace orrery::experiments
