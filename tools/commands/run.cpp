/// orrery run: all runs of a study, then a table of them and the figure.
#include <fmt/format.h>

#include <filesystem>

#include "experiments/study/study.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/commands/inputs.h"
#include "tools/commands/run_folder.h"
#include "tools/commands/study_report.h"

namespace orrery::tools {

extern const Command kTwin;

namespace {

/// Flags that say nothing to a study of some command.
void refuse(bool given, const char* flag, const char* what) {
  if (!given) return;
  config::Diagnostics diagnostics;
  diagnostics.add(at_flag(flag), what);
  diagnostics.raise();
}

int run_twin_of(const RunSettings& args) {
  refuse(args.timelines, "--timelines", "this experiment has no timelines");
  refuse(args.sweep.shard.has_value(), "--shard", "a twin's runs are not divided");
  config::Value twin = config::Value::map({});
  twin.append("manifest", config::Value::scalar(args.manifest));
  if (args.sweep.results != SweepSettings().results) {
    twin.append("results", config::Value::scalar(args.sweep.results));
  }
  if (args.sweep.dry_run) twin.append("dry_run", config::Value::scalar("true"));
  if (args.sweep.no_figure) twin.append("no_figure", config::Value::scalar("true"));
  experiments::Call call;
  call.on_note = [](const std::string& text) { fmt::print(stderr, "orrery: {}\n", text); };
  const auto outcome = kTwin.run(twin, config::Value::map({}), call, {});
  if (args.json) {
    print(detail::to_json(outcome->result()));
  } else {
    outcome->print();
  }
  return outcome->status();
}

int run(const RunSettings& given) {
  config::Diagnostics diagnostics;
  const std::vector<std::string> files = experiments_of(given.manifest, diagnostics);
  diagnostics.raise();
  if (files.size() > 1) return run_folder(given, files);
  RunSettings args = given;
  args.manifest = files.front();
  if (is_twin(args.manifest)) return run_twin_of(args);
  const experiments::Study study = experiments::load_study(args.manifest, diagnostics);
  if (study.command.value != "plan") {
    refuse(args.timelines, "--timelines", "this experiment has no timelines");
  }
  return run_and_report(study, args.sweep, args.json, args.timelines, diagnostics);
}

}  // namespace

void describe(config::Visitor& v, RunSettings& settings) {
  v.required("manifest", settings.manifest,
             "manifest.yaml of a study, or a folder: all studies below it", {.positional = true});
  describe(v, settings.sweep);
  v.optional("timelines", settings.timelines, "write a Perfetto timeline for each run");
  describe_json(v, settings.json);
}

extern const Command kRun;
const Command kRun = printing_command<RunSettings, run>(
    "run", "Run an experiment: all runs of a manifest, and the figure that they end in",
    "run experiments/hexiscale/case_study --no-figure");

}  // namespace orrery::tools
