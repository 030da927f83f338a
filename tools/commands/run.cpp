/// orrery run: all runs of a study, then a table of them and the figure.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "experiments/study/study.h"
#include "experiments/study/study_files.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/commands/run_folder.h"
#include "tools/commands/study_report.h"

namespace orrery::tools {

extern const Command kTwin;

namespace {

namespace fs = std::filesystem;

/// Flags that say nothing to a study of some command.
void refuse(bool given, const char* flag, const char* what, config::Diagnostics& problems) {
  if (given) problems.add(at_flag(flag), what);
}

/// Shows how it went as it is: not a sweep.
StudyReport run_twin(const RunSettings& args, const std::string& file,
                     const experiments::Call& call, config::Diagnostics problems) {
  refuse(args.sweep.shard.has_value(), "--shard", "a twin's runs are not divided", problems);
  refuse(args.slurm.slurm, "--slurm", "a twin executes on this machine", problems);
  refuse(args.join, "--join", "a twin's runs are not divided", problems);
  config::Value twin = config::Value::map({});
  twin.append("manifest", config::Value::scalar(file));
  if (args.sweep.results != SweepSettings().results) {
    twin.append("results", config::Value::scalar(args.sweep.results));
  }
  if (args.sweep.dry_run) twin.append("dry_run", config::Value::scalar("true"));
  if (args.sweep.no_figure) twin.append("no_figure", config::Value::scalar("true"));
  const std::shared_ptr<Outcome> outcome =
      kTwin.run(twin, config::Value::map({}), call, std::move(problems));
  return {.print = [outcome] { outcome->print(); },
          .document = [outcome](config::Visitor& v) { outcome->result().visit(v); },
          .status = outcome->status()};
}

/// The array's tasks see everything by its whole path.
experiments::SlurmJob slurm_job(const RunSettings& args, const std::string& file,
                                const std::string& name) {
  RunSettings task = args;
  task.slurm = {};
  task.join = true;
  task.sweep.quiet = true;
  task.sweep.no_figure = true;
  task.sweep.results = fs::absolute(args.sweep.results).lexically_normal();
  const std::string& cache = args.sweep.cache.folder;
  if (!cache.empty() && cache != "off") task.sweep.cache.folder = fs::absolute(cache);
  return {.settings = args.slurm,
          .name = "orrery " + name,
          .workers = args.sweep.workers.value_or(0),
          .command = run_command(task, fs::absolute(file).lexically_normal())};
}

RunExtras extras_of(const RunSettings& args, const std::string& file, const std::string& name) {
  RunExtras extras{.timelines = args.timelines, .join = args.join, .slurm = std::nullopt};
  if (args.slurm.slurm) extras.slurm = slurm_job(args, file, name);
  return extras;
}

StudyReport run_experiment(const RunSettings& args, const experiments::Call& call,
                           config::Diagnostics problems) {
  const std::vector<std::string> files = experiments::studies_below(args.manifest, problems);
  if (files.empty()) problems.raise();
  if (files.size() > 1) {
    problems.raise();
    return run_folder(args, files, call);
  }
  const std::string& file = files.front();
  const std::string command = experiments::command_of_file(file);
  refuse(args.timelines && command != "plan", "--timelines", "this experiment has no timelines",
         problems);
  if (command == "twin") return run_twin(args, file, call, std::move(problems));
  const experiments::Study study = experiments::load_study(file, problems);
  return run_and_report(study, args.sweep, extras_of(args, file, study.name), call,
                        std::move(problems));
}

}  // namespace

void describe(config::Visitor& v, RunSettings& settings) {
  v.required("manifest", settings.manifest,
             "manifest.yaml of a study, or a folder: all studies below it", {.positional = true});
  describe(v, settings.sweep);
  v.optional("timelines", settings.timelines, "write a Perfetto timeline for each run");
  v.optional("join", settings.join,
             "help another call with the same results folder, also one on another host: do runs "
             "that no call has taken until there are none, and leave tables and figure to the "
             "others");
  describe(v, settings.slurm);
  if (v.reading() && settings.slurm.slurm) {
    if (settings.join) v.problem("join", "the tasks of --slurm join anyway");
    if (settings.sweep.limit) v.problem("limit", "--slurm does all runs");
  }
}

extern const Command kRun;
const Command kRun = command<run_experiment, print_report<RunSettings>>(
    "run", "Run an experiment: all runs of a manifest, and the figure that they end in",
    "run experiments/hexiscale/case_study --no-figure");

}  // namespace orrery::tools
