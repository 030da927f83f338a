/// orrery twin: plans are executed, the machine is calibrated, the simulator predicts what ran, and
/// both are compared: in one go, as a manifest says.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "executor/netlab/error.h"
#include "executor/netlab/namespaces.h"
#include "experiments/study/figure.h"
#include "models/base/file.h"
#include "models/base/text.h"
#include "models/ir/names.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/compare_report.h"
#include "tools/commands/execute_netlab.h"
#include "tools/commands/inputs.h"
#include "tools/commands/interrupt.h"
#include "tools/commands/netlab_cluster.h"
#include "tools/commands/twin_report.h"
#include "tools/commands/twin_steps.h"

namespace orrery::tools {
namespace {

namespace fs = std::filesystem;
using config::Diagnostics;

/// First line of the notes of a twin without the network that they speak of.
constexpr const char* kLoopbackNote =
    "Network: loopback. The ranks talked over loopback of one machine: the emulated links that the "
    "text below speaks of were not there.\n\n";

/// What was asked for, checked.
struct PreparedTwin {
  TwinManifest manifest;
  JobSettings job;
  TwinPlace place;
  executor::NetlabSpec lab;
  std::vector<TwinRun> runs;
};

/// Plan files can be loaded, and kills are of ranks that they have: before anything runs.
void check_plans(const TwinManifest& manifest, JobSettings job, Diagnostics& diagnostics) {
  std::map<std::string, std::vector<const TwinPlan*>> by_job;
  for (const TwinPlan& plan : manifest.plans) {
    if (plan.plan) by_job[plan.job ? plan.job->value : manifest.job.value].push_back(&plan);
  }
  std::map<std::string, std::size_t> ranks_of;  // by name
  for (const auto& [file, plans] : by_job) {
    job.job = file;
    std::vector<std::string> files;
    for (const TwinPlan* plan : plans) files.push_back(plan->plan->value);
    const std::vector<experiments::LoadedRun> runs = load_plans(files, job, {});
    for (std::size_t i = 0; i < plans.size(); ++i) {
      ranks_of[plans[i]->name.value] = ir::devices_of(*runs[i].plan).size();
    }
  }
  for (const TwinRecovery& recovery : manifest.recoveries) {
    const auto of = ranks_of.find(recovery.plan.value);
    const std::optional<TwinKill> kill = kill_of(recovery, diagnostics);
    if (of == ranks_of.end() || !kill) continue;
    if (kill->rank < static_cast<std::int64_t>(of->second)) continue;
    diagnostics.add(recovery.kill.at, fmt::format("kill: rank {} of {}, of plan '{}'", kill->rank,
                                                  of->second, recovery.plan.value));
  }
}

/// What flags ask for must fit the manifest.
void check_flags(const TwinSettings& args, const TwinManifest& manifest, const TwinPlace& place,
                 Diagnostics& diagnostics) {
  if (!args.dry_run) check_out_folder("--results", place.results, diagnostics);
  if (args.steps && place.steps <= manifest.warm_up) {
    diagnostics.add(at_flag("--steps"),
                    fmt::format("the manifest's warm-up of {} leaves none of {}", manifest.warm_up,
                                place.steps));
  }
  std::vector<std::string> names;
  for (const TwinPlan& plan : manifest.plans) names.push_back(plan.name.value);
  for (const TwinRecovery& recovery : manifest.recoveries) {
    names.push_back(recovery.name.value);
    const std::optional<TwinKill> kill = kill_of(recovery, diagnostics);
    if (args.steps && kill && kill->step > place.steps) {
      diagnostics.add(at_flag("--steps"),
                      fmt::format("'{}' kills a rank in step {} of {}", recovery.name.value,
                                  kill->step, place.steps));
    }
  }
  if (!args.only) return;
  const std::vector<std::string> texts = split(*args.only, ',');
  if (texts.empty()) diagnostics.add(at_flag("--only"), "names no run");
  for (const std::string& text : texts) {
    if (std::any_of(names.begin(), names.end(),
                    [&](const std::string& name) { return is_asked_for(name, text); })) {
      continue;
    }
    diagnostics.add(at_flag("--only"), fmt::format("no run has '{}' in its name", text),
                    config::suggest(text, names, "runs"));
  }
}

PreparedTwin prepare(const TwinSettings& args) {
  Diagnostics diagnostics;
  PreparedTwin out;
  out.manifest = load_twin_manifest(args.manifest, diagnostics);
  diagnostics.raise();
  TwinPlace& place = out.place;
  place.results = args.results.value_or(fmt::format("results/twin/{}", out.manifest.name));
  place.loopback = args.loopback;
  place.quick = args.quick;
  place.interrupted = &interrupted;
  place.steps = args.steps.value_or(out.manifest.steps);
  out.job.cluster = out.manifest.cluster.value;
  out.job.model = out.manifest.model.value;
  out.job.job = out.manifest.job.value;
  const models::Library library = open_library(diagnostics);
  const models::Cluster cluster = models::load_cluster(out.manifest.cluster.value, library,
                                                       out.manifest.cluster.at, diagnostics);
  diagnostics.raise();
  out.lab = place.loopback ? netlab_of(cluster) : netlab_for_run(cluster, diagnostics);
  const std::vector<double> by_node =
      executor::netlab_slowdowns(out.lab, std::max(1U, std::thread::hardware_concurrency()));
  for (const models::Device& device : cluster.devices) {
    place.slowdowns[device.id.value] = by_node[device.node.index()];
  }
  check_plans(out.manifest, out.job, diagnostics);
  if (out.manifest.profile) models::load_profile(out.manifest.profile->value, diagnostics);
  check_flags(args, out.manifest, place, diagnostics);
  diagnostics.raise();
  out.runs = twin_runs(out.manifest, place.results, args.only.value_or(""));
  return out;
}

std::string state_text(const TwinRun& run) {
  if (!run.skipped.empty()) return fmt::format("skipped: {}", run.skipped);
  if (run.finished) return "there already";
  std::error_code error;
  return fs::exists(run.plan, error) ? "to run" : "to plan and run";
}

std::string dry_run_text(const PreparedTwin& prepared) {
  Table table;
  table.column("run").column("set").column("plan").column("loses").column("");
  for (const TwinRun& run : prepared.runs) {
    table.row({run.name,
               run.fit            ? "fit"
               : run.seen.empty() ? "predict"
                                  : "seen",
               run.source == "file" ? run.plan : run.source,
               run.policy.empty() ? std::string() : fmt::format("{} ({})", run.kill, run.policy),
               state_text(run)});
  }
  return table.text(0, colors());
}

/// The emulated network, or none: then it is said why, and ranks talk over loopback.
std::unique_ptr<ExecuteLab> set_up_lab(PreparedTwin& prepared) {
  if (prepared.place.loopback) return nullptr;
  try {
    return std::make_unique<ExecuteLab>(
        prepared.lab, [](const std::string& line) { fmt::print(stderr, "orrery: {}\n", line); });
  } catch (const executor::NetlabError& error) {
    fmt::print(stderr,
               "orrery: no emulated network: {}\n"
               "orrery: ranks talk over loopback instead, as with --loopback\n",
               error.what());
    prepared.place.loopback = true;
    return nullptr;
  }
}

/// Executes what is not there yet; failures by name.
std::map<std::string, std::string> execute_all(PreparedTwin& prepared) {
  std::map<std::string, std::string> failed;
  std::size_t number = 0;
  for (TwinRun& run : prepared.runs) {
    ++number;
    if (!run.skipped.empty() || run.finished || interrupted) continue;
    fmt::print(stderr, "[{}/{}] {}: ", number, prepared.runs.size(), run.name);
    const auto start = std::chrono::steady_clock::now();
    const std::string problem = execute_run(prepared.manifest, prepared.place, run);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    fmt::print(stderr, "{}\n", problem.empty() ? duration(took.count()) : problem);
    if (!problem.empty()) failed[run.name] = problem;
  }
  return failed;
}

/// The comparison of a run with a profile, which lies in a file.
RunComparison compared(const PreparedTwin& prepared, const TwinRun& run,
                       const std::string& profile) {
  Diagnostics diagnostics;
  CompareRequest request{run.folder, "", profile, {}};
  request.options.warm_up = static_cast<int>(prepared.manifest.warm_up);
  RunComparison out = compare_run(request, diagnostics);
  diagnostics.raise();
  return out;
}

/// Parameters from the runs for fitting, by the rules of experiments/twin/netlab/README.md.
TwinParameters fit(const PreparedTwin& prepared, const std::string& profile) {
  std::vector<RunComparison> kept;
  std::vector<std::vector<calibration::MeasuredPhase>> phases;
  std::vector<Seconds> moves;
  calibration::CompareOptions options;
  options.warm_up = static_cast<int>(prepared.manifest.warm_up);
  for (const TwinRun& run : prepared.runs) {
    if (!run.fit || !run.finished) continue;
    RunComparison comparison = compared(prepared, run, profile);
    if (run.policy.empty()) {
      kept.push_back(std::move(comparison));
    } else if (comparison.generations.size() > 1) {
      phases.push_back(calibration::recovery_phases(comparison.generations[1].measured));
      moves.push_back({comparison.generations[1].simulated_move});
    }
  }
  std::vector<calibration::JoinedRun> joined;
  for (const RunComparison& comparison : kept) {
    const GenerationComparison& first = comparison.generations.front();
    auto ops = calibration::join_ops(first.program, first.predicted, first.measured, options);
    if (auto* found = std::get_if<std::vector<calibration::JoinedOp>>(&ops)) {
      joined.push_back({&first.program, std::move(*found)});
    }
  }
  TwinParameters out;
  out.factors = calibration::fit_factors(joined);
  ir::Provenance provenance;
  provenance.source = fmt::format("recoveries of twin '{}'", prepared.manifest.name);
  out.phases = calibration::fit_phases(phases, moves, provenance);
  return out;
}

TwinResult result_of(const PreparedTwin& prepared, const TwinRun& run,
                     const std::string& raw_profile, const std::string& profile) {
  TwinResult out;
  out.run = run;
  out.problem = run.skipped;
  if (!run.finished) return out;
  const bool recovery = !run.policy.empty();
  RunComparison raw = compared(prepared, run, raw_profile);
  RunComparison final = compared(prepared, run, profile);
  // In a run with a recovery the steps after it count.
  const std::size_t which = recovery ? 1 : 0;
  if (final.generations.size() <= which) {
    out.problem = "no device was lost";
    return out;
  }
  out.schedule = ir::name_of(final.generations[which].program.header.schedule);
  out.problem = final.generations[which].problem;
  if (recovery) out.phases = final.generations[which].phases;
  out.raw = std::move(raw.generations[which]);
  out.final = std::move(final.generations[which]);
  return out;
}

void write_results(const PreparedTwin& prepared, const TwinSummary& summary, bool figures) {
  const fs::path folder = prepared.place.results;
  const auto write = [&](const char* name, const std::string& text) {
    write_file((folder / name).string(), text);
  };
  write("twin.csv", twin_csv(summary));
  write("phases.csv", phases_csv(summary));
  write("errors.csv", twin_errors_csv(summary));
  write("parameters.csv", twin_parameters_csv(summary));
  std::error_code error;
  const fs::path notes = fs::path(prepared.manifest.folder) / "notes.md";
  std::string text;
  if (fs::exists(notes, error) && !read_file(notes.string(), text)) {
    write("notes.md", (summary.loopback ? kLoopbackNote : "") + text);
  }
  for (const TwinResult& result : summary.results) {
    if (!result.final || !result.final->comparison) continue;
    write_file((fs::path(result.run.folder) / "timeline.csv").string(),
               timeline_csv(*result.final, static_cast<int>(prepared.manifest.warm_up)));
  }
  if (!figures) return;
  const fs::path root = ORRERY_SOURCE_DIR;
  const experiments::FigureResult figure =
      experiments::draw_figure({(root / "experiments" / "twin").string(), "plot.py", ""},
                               (folder / "twin.csv").string(), folder.string());
  for (const std::string& file : figure.files) print(file + "\n");
  if (!figure.problem.empty()) fmt::print(stderr, "orrery: no {}\n", figure.problem);
}

/// Profiles, predictions, results.
void predict_all(const PreparedTwin& prepared, const TwinSettings& args, ir::Profile measured,
                 const std::map<std::string, std::string>& failed) {
  const fs::path folder = prepared.place.results;
  const std::string raw_profile = (folder / "profile_micro_benchmarks.yaml").string();
  const std::string profile = (folder / "profile.yaml").string();
  write_file(raw_profile, models::dump_profile(measured));
  TwinSummary summary;
  summary.name = prepared.manifest.name;
  summary.loopback = prepared.place.loopback;
  summary.parameters = fit(prepared, raw_profile);
  ir::Profile final = calibration::scaled(std::move(measured), summary.parameters.factors);
  final.phases = summary.parameters.phases;
  write_file(profile, models::dump_profile(final));
  for (const TwinRun& run : prepared.runs) {
    if (interrupted) return;
    TwinResult result = result_of(prepared, run, raw_profile, profile);
    const auto why = failed.find(run.name);
    if (why != failed.end()) result.problem = why->second;
    summary.results.push_back(std::move(result));
  }
  mark_equal_programs(summary);
  print(args.json ? twin_json(summary) : fmt::format("\n{}", twin_text(summary)));
  write_results(prepared, summary, !args.no_figure && !args.json);
  if (!args.json) print(fmt::format("{}\n", (folder / "twin.csv").string()));
}

}  // namespace

void describe(config::Visitor& v, TwinSettings& settings) {
  v.required("manifest", settings.manifest, "study of a twin (command: twin), or its folder",
             {.positional = true});
  v.optional("results", settings.results, "where results go; default: results/twin/<name>");
  v.optional("steps", settings.steps, "steps of each run; default: what the manifest says");
  v.optional("only", settings.only,
             "only runs whose names hold this text, or one of several (a,b)");
  v.optional("loopback", settings.loopback,
             "no emulated network: ranks talk over loopback; the results say so");
  v.optional("quick", settings.quick, "few repetitions of the micro-benchmarks: to try it out");
  v.optional("dry_run", settings.dry_run, "say what would run, and what is there already");
  v.optional("no_figure", settings.no_figure, "do not draw the figures");
  describe_json(v, settings.json);
  if (settings.steps) v.at_least("steps", *settings.steps, std::int64_t{2});
}

int run_twin(const TwinSettings& args) {
  PreparedTwin prepared = prepare(args);
  if (args.dry_run) {
    TwinPlace& place = prepared.place;
    place.loopback = place.loopback || !executor::netlab_unavailable().empty();
    look_at_plans(prepared.manifest, prepared.job, place, prepared.runs);
    find_finished(prepared.manifest, place, prepared.runs);
    print(dry_run_text(prepared));
    return 0;
  }
  std::error_code error;
  fs::create_directories(prepared.place.results, error);
  signal(SIGINT, on_interrupt);
  signal(SIGTERM, on_interrupt);
  make_plans(prepared.manifest, prepared.job, prepared.place, prepared.runs);
  if (was_interrupted()) interrupted = true;
  if (interrupted) return kInterrupted;
  ir::Profile profile;
  std::map<std::string, std::string> failed;
  {
    const std::unique_ptr<ExecuteLab> lab = set_up_lab(prepared);
    find_finished(prepared.manifest, prepared.place, prepared.runs);
    try {
      fmt::print(stderr, "calibrating\n");
      profile = calibrate_machine(prepared.manifest, prepared.job, prepared.place);
    } catch (const std::runtime_error&) {
      if (!interrupted) throw;
    }
    if (!interrupted) failed = execute_all(prepared);
  }
  if (!interrupted) predict_all(prepared, args, std::move(profile), failed);
  if (interrupted) {
    fmt::print(stderr, "orrery: interrupted; finished runs are kept in {}\n",
               prepared.place.results);
    return kInterrupted;
  }
  if (failed.empty()) return 0;
  fmt::print(stderr, "orrery: {} of {} runs failed\n", failed.size(), prepared.runs.size());
  return 1;
}

extern const Command kTwin;
const Command kTwin = printing_command<TwinSettings, run_twin>(
    "twin", "Plan, execute, calibrate, predict and compare in one go",
    "twin experiments/twin/netlab/manifest.yaml",
    "Runs that are finished in the results folder are kept: a second "
    "start goes on. Exit code 130: interrupted.");

}  // namespace orrery::tools
