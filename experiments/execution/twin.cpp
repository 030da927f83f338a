#include "experiments/execution/twin.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "calibration/compare/phases.h"
#include "calibration/compare/residuals.h"
#include "executor/netlab/error.h"
#include "executor/netlab/namespaces.h"
#include "experiments/execution/calibrate.h"
#include "experiments/execution/netlab.h"
#include "experiments/execution/rank_job.h"
#include "experiments/execution/sample_store.h"
#include "experiments/study/exports.h"
#include "experiments/study/figure.h"
#include "experiments/study/files.h"
#include "experiments/study/json.h"
#include "experiments/study/run_tasks.h"
#include "experiments/study/stale_temporaries.h"
#include "models/base/file.h"
#include "models/base/hash.h"
#include "models/base/subprocess.h"
#include "models/ir/names.h"
#include "models/spec/library.h"
#include "models/spec/link_calibration.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;
using config::Diagnostics;

constexpr const char* kKeyFile = "twin.key";
/// What a stored reason was written by: one of another form is asked for anew.
constexpr const char* kReasons = "reasons 2";
/// First line of the notes of a twin without the network that they speak of.
constexpr const char* kLoopbackNote =
    "Network: loopback. The ranks talked over loopback of one machine: the emulated links that the "
    "text below speaks of were not there.\n\n";

/// Where and how ranks run.
struct TwinPlace {
  std::string results;
  bool loopback = false;
  std::map<std::int32_t, double> slowdowns;  ///< By device, as the lab has them.
  std::int64_t steps = 0;
  bool quick = false;
};

/// What was asked for, checked.
struct PreparedTwin {
  TwinManifest manifest;
  JobSettings job;
  TwinPlace place;
  executor::NetlabSpec lab;
  std::vector<TwinRun> runs;
};

/// Whether a name holds one of the texts; without any, all are asked for.
bool is_asked_for(const std::string& name, const std::vector<std::string>& only) {
  return only.empty() || std::any_of(only.begin(), only.end(), [&](const std::string& text) {
           return name.find(text) != std::string::npos;
         });
}

/// Runs of the manifest in its order, plans before recoveries, as far as they are known: plans of
/// planners are made by make_plans(). `only`: those of is_asked_for(); runs for fitting stay.
std::vector<TwinRun> twin_runs(const TwinManifest& manifest, const std::string& results,
                               const std::vector<std::string>& only) {
  std::vector<TwinRun> out;
  std::map<std::string, const TwinPlan*> plans;
  const auto plan_file = [&](const TwinPlan& plan) {
    return plan.plan ? plan.plan->value
                     : (fs::path(results) / "plans" / (plan.name.value + ".yaml")).string();
  };
  const auto add = [&](TwinRun run) {
    if (!run.fit && !is_asked_for(run.name, only)) return;
    run.folder = (fs::path(results) / "runs" / run.name).string();
    out.push_back(std::move(run));
  };
  for (const TwinPlan& plan : manifest.plans) {
    plans[plan.name.value] = &plan;
    TwinRun run;
    run.name = plan.name.value;
    run.source = plan.planner ? plan.planner->value : "file";
    run.plan = plan_file(plan);
    run.job = plan.job ? plan.job->value : manifest.job.value;
    run.fit = plan.fit;
    if (plan.seen) run.seen = plan.seen->value;
    add(std::move(run));
  }
  for (const TwinRecovery& recovery : manifest.recoveries) {
    const TwinPlan& plan = *plans.at(recovery.plan.value);
    TwinRun run;
    run.name = recovery.name.value;
    run.source = plan.name.value;
    run.plan = plan_file(plan);
    run.job = plan.job ? plan.job->value : manifest.job.value;
    run.fit = recovery.fit;
    run.policy = recovery.policy.value;
    run.kill = recovery.kill.value;
    add(std::move(run));
  }
  return out;
}

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
    const std::vector<LoadedRun> runs = load_plans(files, job, {});
    for (std::size_t i = 0; i < plans.size(); ++i) {
      ranks_of[plans[i]->name.value] = ir::devices_of(*runs[i].plan).size();
    }
  }
  for (const TwinRecovery& recovery : manifest.recoveries) {
    const auto of = ranks_of.find(recovery.plan.value);
    const std::int64_t rank = recovery.kill.value.rank;
    if (of == ranks_of.end() || rank < static_cast<std::int64_t>(of->second)) continue;
    diagnostics.add(recovery.kill.at, fmt::format("kill: rank {} of {}, of plan '{}'", rank,
                                                  of->second, recovery.plan.value));
  }
}

/// What flags ask for must fit the manifest.
void check_flags(const TwinSettings& settings, const TwinManifest& manifest, const TwinPlace& place,
                 Diagnostics& diagnostics) {
  if (!settings.dry_run) check_out_folder("results", place.results, diagnostics);
  if (settings.steps && place.steps <= manifest.warm_up) {
    diagnostics.add(at_setting("steps"),
                    fmt::format("the manifest's warm-up of {} leaves none of {}", manifest.warm_up,
                                place.steps));
  }
  std::vector<std::string> names;
  for (const TwinPlan& plan : manifest.plans) names.push_back(plan.name.value);
  for (const TwinRecovery& recovery : manifest.recoveries) {
    names.push_back(recovery.name.value);
    const std::int64_t step = recovery.kill.value.step;
    if (settings.steps && step > place.steps) {
      diagnostics.add(at_setting("steps"), fmt::format("'{}' kills a rank in step {} of {}",
                                                       recovery.name.value, step, place.steps));
    }
  }
  for (const std::string& text : settings.only) {
    if (std::any_of(names.begin(), names.end(),
                    [&](const std::string& name) { return is_asked_for(name, {text}); })) {
      continue;
    }
    diagnostics.add(at_setting("only"), fmt::format("no run has '{}' in its name", text),
                    config::suggest(text, names, "runs"));
  }
}

PreparedTwin prepare(const TwinSettings& settings) {
  Diagnostics diagnostics;
  PreparedTwin out;
  out.manifest = load_twin_manifest(settings.manifest, diagnostics);
  diagnostics.raise();
  TwinPlace& place = out.place;
  place.results = settings.results.value_or(fmt::format("results/twin/{}", out.manifest.name));
  place.loopback = settings.loopback;
  place.quick = settings.quick;
  place.steps = settings.steps.value_or(out.manifest.steps);
  out.job.cluster = out.manifest.cluster.value;
  out.job.model = out.manifest.model.value;
  out.job.job = out.manifest.job.value;
  const models::Library library = open_library(diagnostics);
  const models::Cluster cluster = models::load_cluster(out.manifest.cluster.value, library,
                                                       out.manifest.cluster.at, diagnostics);
  diagnostics.raise();
  out.lab = place.loopback ? netlab_of(cluster) : netlab_for_run(cluster, diagnostics);
  place.slowdowns = lab_slowdowns(out.lab);
  check_plans(out.manifest, out.job, diagnostics);
  if (out.manifest.profile) models::load_profile(out.manifest.profile->value, diagnostics);
  check_flags(settings, out.manifest, place, diagnostics);
  diagnostics.raise();
  out.runs = twin_runs(out.manifest, place.results, settings.only);
  return out;
}

/// Runs `body` in a process of its own that hears of a cancellation as this one does; its notes and
/// what goes wrong go to `errors`. Returns why it failed, in a line; "": it did not.
std::string run_apart(const std::string& errors, const Call& call,
                      const std::function<int(const Call&)>& body) {
  SubprocessOptions options;
  options.signals = ChildSignals::ignore_interrupt;
  options.death_signal = SIGTERM;
  options.body = [&] {
    std::ofstream log(errors);
    Call apart;
    apart.cancellation = call.cancellation;
    apart.on_note = [&](const std::string& text) { log << text << std::endl; };
    try {
      return body(apart);
    } catch (const std::exception& error) {
      log << error.what() << std::endl;
      return 1;
    }
  };
  const ExitStatus status = Subprocess(options).wait();
  if (status.ok()) return "";
  std::string text;
  if (read_file(errors, text)) return in_words(status);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? in_words(status) : text.substr(text.rfind('\n') + 1);
}

std::string hash_of_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) ? content_hash(read_text_file(path)) : path;
}

/// Everything that decides what a run is.
std::string key_of(const TwinManifest& manifest, const TwinPlace& place, const TwinRun& run) {
  std::string text;
  for (const std::string& file :
       {run.plan, manifest.cluster.value, manifest.model.value, run.job}) {
    text += hash_of_file(file) + "\n";
  }
  text += fmt::format("{} {} {} {} {}\n", place.steps, manifest.seed, place.loopback, run.policy,
                      run.policy.empty() ? "" : to_scalar(run.kill));
  for (const auto& [device, factor] : place.slowdowns)
    text += fmt::format("{}={:.9g}\n", device, factor);
  return content_hash(text);
}

/// A planner's plan, or why there is none.
std::optional<ir::Plan> make_plan(const TwinManifest& manifest, const TwinPlan& plan,
                                  const JobSettings& job, const Call& call, std::string& why) {
  config::Diagnostics diagnostics;
  const models::Library library = open_library(diagnostics);
  JudgeSettings judged;
  judged.seed = static_cast<std::int64_t>(manifest.seed);
  RunSpec spec = make_spec(job, judged, {}, diagnostics);
  diagnostics.raise();
  spec.planner = PlannerChoice{*plan.planner, plan.options, {}};
  LoadedRun run = load(spec, library, diagnostics);
  diagnostics.raise();
  const std::vector<RunReport> reports = run_tasks({{plan.name.value, std::move(run), {}}}, call);
  if (reports.front().plan) return reports.front().plan;
  why = no_plan_text(reports.front());
  return std::nullopt;
}

/// The reason, saved next to a plan, that could not be made from these inputs.
std::optional<std::string> stored_reason(const std::string& note, const std::string& inputs) {
  std::string text;
  if (read_file(note, text) || !text.starts_with(inputs + "\n")) return std::nullopt;
  return text.substr(inputs.size() + 1);
}

/// Marks a run whose plan the executor cannot run, or that has no rank to kill.
void check_plan(const TwinManifest& manifest, const LoadedRun& loaded, TwinRun& run) {
  const auto lowered =
      lower_for_ranks(loaded, *loaded.plan, static_cast<std::uint64_t>(manifest.seed));
  if (!lowered.problems.empty()) {
    run.skipped = lowered.problems.front();
    return;
  }
  if (run.policy.empty()) return;
  const auto ranks = static_cast<std::int64_t>(lowered.program.ranks.size());
  if (run.kill.rank >= ranks)
    run.skipped = fmt::format("kill: rank {} of {}", run.kill.rank, ranks);
}

/// Of calls that were killed, in all folders of results.
void remove_stale_temporaries(const std::string& results) {
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(results, error)) {
    if (is_stale_temporary(entry.path())) fs::remove(entry.path(), error);
  }
}

/// Has the planners make their plans below results/plans, unless they lie there; without `make` by
/// what lies there: nothing is planned and nothing written. A planner without a plan, a plan that
/// the executor cannot run and one that equals an earlier one are skipped, with the reason. `job`
/// says cluster and model; the job is each run's own.
void go_through_plans(const TwinManifest& manifest, JobSettings job, const TwinPlace& place,
                      bool make, const Call& call, std::vector<TwinRun>& runs) {
  if (make) make_folders((fs::path(place.results) / "plans").string());
  std::map<std::string, const TwinPlan*> plans;
  for (const TwinPlan& plan : manifest.plans) plans[plan.name.value] = &plan;
  std::map<std::string, std::string> known;  // plan hash and job -> run
  for (TwinRun& run : runs) {
    job.job = run.job;
    const auto of = plans.find(run.name);
    const bool by_planner = of != plans.end() && of->second->planner.has_value();
    const std::string inputs = content_hash(
        hash_of_file(*job.cluster) + hash_of_file(*job.model) + hash_of_file(*job.job) +
        (by_planner ? of->second->planner->value : "") + std::to_string(manifest.seed) + kReasons);
    const std::string note = run.plan + ".none";
    std::error_code error;
    if (by_planner && !fs::exists(run.plan, error)) {
      if (const auto reason = stored_reason(note, inputs)) {
        run.skipped = *reason;
      } else if (make) {
        if (call.cancellation.requested()) return;
        call.note("planning " + run.name);
        const auto plan = make_plan(manifest, *of->second, job, call, run.skipped);
        if (plan) {
          write_file(run.plan, models::dump_plan(*plan));
        } else if (!call.cancellation.requested()) {
          write_file(note, inputs + "\n" + run.skipped);
        }
      }
    }
    if (!run.skipped.empty() || !fs::exists(run.plan, error)) {
      if (run.skipped.empty() && make) run.skipped = "no plan";
      continue;
    }
    const LoadedRun loaded = load_plans({run.plan}, job, {}).front();
    check_plan(manifest, loaded, run);
    if (!run.skipped.empty() || !run.policy.empty()) continue;
    const auto [same, fresh] =
        known.emplace(models::plan_hash(*loaded.plan) + " " + run.job, run.name);
    if (!fresh) run.skipped = fmt::format("the plan of {}", same->second);
  }
}

/// Marks what is finished: run by the same inputs before.
void find_finished(const TwinManifest& manifest, const TwinPlace& place,
                   std::vector<TwinRun>& runs) {
  for (TwinRun& run : runs) {
    std::error_code error;
    const fs::path key = fs::path(run.folder) / kKeyFile;
    if (!run.skipped.empty() || !fs::exists(key, error)) continue;
    run.finished = read_text_file(key.string()) == key_of(manifest, place, run);
  }
}

/// Executes one run; "" or why it failed. Its folder appears when it is complete.
std::string execute_run(const TwinManifest& manifest, const TwinPlace& place, const Call& call,
                        TwinRun& run) {
  const fs::path part = run.folder + ".part";
  std::error_code error;
  fs::remove_all(part, error);
  make_folders(part.string());
  ExecuteSettings settings;
  settings.plan = run.plan;
  settings.job.cluster = manifest.cluster.value;
  settings.job.model = manifest.model.value;
  settings.job.job = run.job;
  settings.steps = place.steps;
  settings.seed = manifest.seed;
  settings.out = part.string();
  settings.machines.netlab = !place.loopback;
  for (const auto& [device, factor] : place.slowdowns) {
    if (place.loopback && factor != 1) settings.slowdowns.push_back({{device}, factor});
  }
  if (!run.policy.empty()) {
    settings.elastic = run.policy;
    settings.kills = {run.kill};
  }
  const std::string problem =
      run_apart((part / "execute.err").string(), call, [&](const Call& apart) {
        const ExecuteResult result = execute(settings, apart);
        write_file((part / "execute.json").string(), to_json(result));
        return exit_status(result);
      });
  if (call.cancellation.requested()) return "interrupted";
  if (!problem.empty()) return problem;
  write_file((part / kKeyFile).string(), key_of(manifest, place, run));
  fs::remove_all(run.folder, error);
  fs::rename(part, run.folder);
  run.finished = true;
  return "";
}

/// Whether the folder has samples of a try with few repetitions.
bool is_quick(const fs::path& calibration) {
  const fs::path samples = calibration / "samples.csv";
  std::error_code error;
  return fs::exists(samples, error) &&
         load_samples(samples.string()).sampling == ir::kQuickSampling;
}

/// The machine's profile from micro-benchmarks: of one core that is not slowed down ("cpu"), and of
/// the cluster's links, or over loopback; results/calibration/profile.yaml. Keeps what is there,
/// but for tries where the full measurement is asked for. Throws std::runtime_error with the
/// reason.
ir::Profile calibrate_machine(const TwinManifest& manifest, const JobSettings& job,
                              const TwinPlace& place, const Call& call) {
  Diagnostics diagnostics;
  if (manifest.profile) {
    ir::Profile profile = models::load_profile(manifest.profile->value, diagnostics);
    diagnostics.raise();
    return profile;
  }
  const fs::path folder = fs::path(place.results) / "calibration";
  const models::Job loaded = models::load_job(*job.job, diagnostics);
  const models::Cluster cluster = models::load_cluster(
      manifest.cluster.value, open_library(diagnostics), manifest.cluster.at, diagnostics);
  diagnostics.raise();
  const auto measure = [&](const char* name, CalibrateSettings settings) {
    const fs::path out = folder / name;
    const fs::path last = out / "calibrate.json";  // Written once the rest is.
    std::error_code error;
    if (!place.quick && is_quick(out)) fs::remove_all(out, error);
    if (!fs::exists(last, error)) {
      make_folders(out.string());
      settings.model = job.model;
      settings.sequence_length = loaded.sequence_length;
      settings.precision = executor::Precision::fp32;
      settings.out = out.string();
      settings.no_figure = settings.quiet = true;
      settings.quick = place.quick;
      const std::string problem =
          run_apart((out / "calibrate.err").string(), call, [&](const Call& apart) {
            write_file(last.string(), to_json(calibrate(settings, apart)));
            return 0;
          });
      if (!problem.empty()) {
        throw std::runtime_error(fmt::format("calibrating ({}): {}", name, problem));
      }
    }
    ir::Profile part = models::load_profile((out / "profile.yaml").string(), diagnostics);
    diagnostics.raise();
    return part;
  };
  using ir::MeasurementKind;
  CalibrateSettings compute;
  compute.gpu_type = "cpu";
  compute.only = {MeasurementKind::block, MeasurementKind::optimizer, MeasurementKind::memory,
                  MeasurementKind::op_overhead};
  ir::Profile profile = measure("compute", compute);
  CalibrateSettings network;
  network.cluster = job.cluster;
  network.only = {MeasurementKind::point_to_point, MeasurementKind::collective};
  network.machines.netlab = !place.loopback;
  ir::Profile links = measure(place.loopback ? kLoopback : "network", network);
  if (place.loopback) links = over_loopback(std::move(links), cluster);
  profile.name = manifest.name;
  profile.links = links.links;
  profile.collectives = links.collectives;
  write_file((folder / "profile.yaml").string(), models::dump_profile(profile));
  return profile;
}

/// The emulated network, or none: then it is said why, and ranks talk over loopback.
std::unique_ptr<ClusterLab> set_up_lab(PreparedTwin& prepared, const Call& call) {
  if (prepared.place.loopback) return nullptr;
  try {
    return std::make_unique<ClusterLab>(prepared.lab, call.on_note);
  } catch (const executor::NetlabError& error) {
    call.note(fmt::format("no emulated network: {}", error.what()));
    call.note("ranks talk over loopback instead, as with --loopback");
    prepared.place.loopback = true;
    return nullptr;
  }
}

/// Executes what is not there yet; failures by name.
std::map<std::string, std::string> execute_all(PreparedTwin& prepared, const Call& call) {
  std::map<std::string, std::string> failed;
  std::size_t number = 0;
  for (TwinRun& run : prepared.runs) {
    ++number;
    if (!run.skipped.empty() || run.finished || call.cancellation.requested()) continue;
    const std::string name = fmt::format("[{}/{}] {}", number, prepared.runs.size(), run.name);
    call.note(name);
    const std::string problem = execute_run(prepared.manifest, prepared.place, call, run);
    if (problem.empty()) continue;
    call.note(fmt::format("{}: {}", name, problem));
    failed[run.name] = problem;
  }
  return failed;
}

/// The comparison of a run with a profile, which lies in a file.
CompareResult compared(const PreparedTwin& prepared, const TwinRun& run,
                       const std::string& profile) {
  Diagnostics diagnostics;
  CompareSettings settings;
  settings.run = run.folder;
  settings.profile = profile;
  calibration::CompareOptions options;
  options.warm_up = static_cast<int>(prepared.manifest.warm_up);
  CompareResult out = compare_run(settings, options, diagnostics);
  diagnostics.raise();
  return out;
}

/// Parameters from the runs for fitting, by the rules of experiments/twin/netlab/README.md.
TwinParameters fit(const PreparedTwin& prepared, const std::string& profile) {
  std::vector<CompareResult> kept;
  std::vector<std::vector<calibration::MeasuredPhase>> phases;
  std::vector<Seconds> moves;
  calibration::CompareOptions options;
  options.warm_up = static_cast<int>(prepared.manifest.warm_up);
  for (const TwinRun& run : prepared.runs) {
    if (!run.fit || !run.finished) continue;
    CompareResult comparison = compared(prepared, run, profile);
    if (run.policy.empty()) {
      kept.push_back(std::move(comparison));
    } else if (comparison.generations.size() > 1) {
      phases.push_back(calibration::recovery_phases(comparison.generations[1].measured));
      moves.push_back({comparison.generations[1].simulated_move});
    }
  }
  std::vector<calibration::JoinedRun> joined;
  for (const CompareResult& comparison : kept) {
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
  CompareResult raw = compared(prepared, run, raw_profile);
  CompareResult final = compared(prepared, run, profile);
  // If a rank was lost, the steps after the recovery count.
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

void write_results(const PreparedTwin& prepared, bool figures, const Call& call,
                   TwinSummary& summary) {
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
  const FigureResult figure =
      draw_figure({(root / "experiments" / "twin").string(), "plot.py", ""},
                  (folder / "twin.csv").string(), folder.string(), call.cancellation.flag());
  summary.files = figure.files;
  if (!figure.problem.empty()) call.note("no " + figure.problem);
}

/// Profiles, predictions, results. Stops early when it is canceled.
TwinSummary predict_all(const PreparedTwin& prepared, const TwinSettings& settings,
                        ir::Profile measured, const std::map<std::string, std::string>& failed,
                        const Call& call) {
  const fs::path folder = prepared.place.results;
  const std::string raw_profile = (folder / "profile_micro_benchmarks.yaml").string();
  const std::string profile = (folder / "profile.yaml").string();
  write_file(raw_profile, models::dump_profile(measured));
  TwinSummary summary;
  summary.name = prepared.manifest.name;
  summary.loopback = prepared.place.loopback;
  summary.folder = prepared.place.results;
  summary.failed = static_cast<int>(failed.size());
  summary.parameters = fit(prepared, raw_profile);
  ir::Profile final = calibration::scaled(std::move(measured), summary.parameters.factors);
  final.phases = summary.parameters.phases;
  write_file(profile, models::dump_profile(final));
  for (const TwinRun& run : prepared.runs) {
    if (call.cancellation.requested()) return summary;
    TwinResult result = result_of(prepared, run, raw_profile, profile);
    const auto why = failed.find(run.name);
    if (why != failed.end()) result.problem = why->second;
    summary.results.push_back(std::move(result));
  }
  mark_equal_programs(summary);
  write_results(prepared, !settings.no_figure, call, summary);
  return summary;
}

/// What would run, and what is there already.
TwinSummary look(PreparedTwin& prepared, const Call& call) {
  TwinPlace& place = prepared.place;
  place.loopback = place.loopback || !executor::netlab_unavailable().empty();
  go_through_plans(prepared.manifest, prepared.job, place, false, call, prepared.runs);
  find_finished(prepared.manifest, place, prepared.runs);
  TwinSummary summary;
  summary.name = prepared.manifest.name;
  summary.loopback = place.loopback;
  for (const TwinRun& run : prepared.runs) {
    TwinResult& result = summary.results.emplace_back();
    result.run = run;
    result.problem = run.skipped;
  }
  return summary;
}

}  // namespace

void describe(config::Visitor& v, TwinSettings& settings) {
  v.required("manifest", settings.manifest, "study of a twin (command: twin), or its folder",
             {.positional = true});
  v.optional("results", settings.results, "where results go; default: results/twin/<name>");
  v.optional("steps", settings.steps, "steps of each run; default: what the manifest says");
  v.optional("only", settings.only, "only runs whose names hold this text, or one of several (a,b)",
             {.commas = true});
  v.optional("loopback", settings.loopback,
             "no emulated network: ranks talk over loopback; the results say so");
  v.optional("quick", settings.quick, "few repetitions of the micro-benchmarks: to try it out");
  v.optional("dry_run", settings.dry_run, "say what would run, and what is there already");
  v.optional("no_figure", settings.no_figure, "do not draw the figures");
  v.not_empty("only", settings.only, "names no run");
  if (settings.steps) v.at_least("steps", *settings.steps, std::int64_t{2});
}

TwinSummary twin(const TwinSettings& settings, const Call& call) {
  PreparedTwin prepared = prepare(settings);
  if (settings.dry_run) return look(prepared, call);
  make_folders(prepared.place.results);
  remove_stale_temporaries(prepared.place.results);
  // A closed terminal, too, must not leave the emulated network behind.
  const Cancellation::Listener listener(call.cancellation, {SIGINT, SIGTERM, SIGHUP});
  const auto check = [&] {
    if (!call.cancellation.requested()) return;
    throw Interrupted(
        fmt::format("interrupted; finished runs are kept in {}", prepared.place.results));
  };
  go_through_plans(prepared.manifest, prepared.job, prepared.place, true, call, prepared.runs);
  check();
  ir::Profile profile;
  std::map<std::string, std::string> failed;
  {
    const std::unique_ptr<ClusterLab> lab = set_up_lab(prepared, call);
    find_finished(prepared.manifest, prepared.place, prepared.runs);
    try {
      call.note("calibrating");
      profile = calibrate_machine(prepared.manifest, prepared.job, prepared.place, call);
    } catch (const std::runtime_error&) {
      if (!call.cancellation.requested()) throw;
    }
    if (!call.cancellation.requested()) failed = execute_all(prepared, call);
  }
  check();
  TwinSummary summary = predict_all(prepared, settings, std::move(profile), failed, call);
  check();
  if (!failed.empty()) {
    call.note(fmt::format("{} of {} runs failed", failed.size(), prepared.runs.size()));
  }
  return summary;
}

ir::Profile over_loopback(ir::Profile profile, const models::Cluster& cluster) {
  std::set<std::string> missing = models::link_classes(cluster);
  for (const ir::LinkSegment& entry : profile.links) missing.erase(entry.link_class);
  for (const ir::CollectiveFactor& entry : profile.collectives) missing.erase(entry.link_class);
  const auto copy = [&](auto& entries) {
    const std::size_t count = entries.size();
    for (const std::string& name : missing) {
      for (std::size_t i = 0; i < count; ++i) {
        if (entries[i].link_class != kLoopback) continue;
        auto entry = entries[i];
        entry.link_class = name;
        entry.provenance.source += fmt::format(", over loopback in place of {}", name);
        entries.push_back(std::move(entry));
      }
    }
  };
  copy(profile.links);
  copy(profile.collectives);
  return profile;
}

}  // namespace orrery::experiments
