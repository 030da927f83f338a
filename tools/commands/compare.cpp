/// orrery compare: a run that was executed against what the simulator says about its programs.
#include <fmt/format.h>

#include <filesystem>

#include "experiments/study/figure.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/output.h"
#include "tools/commands/compare_report.h"
#include "tools/commands/compare_run.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {
namespace {

/// A run that was executed against its simulation.
struct CompareSettings {
  std::string run;
  Text profile;
  Text cluster;
  std::optional<int> warm_up;
  int worst = calibration::CompareOptions{}.worst;
  Text out;
  bool no_figure = false;
  bool json = false;
};

void describe(config::Visitor& v, CompareSettings& settings) {
  v.required("run", settings.run,
             "folder that `orrery execute --out` wrote, one of its generations, or a run.log",
             {.positional = true});
  v.optional("profile", settings.profile, "profile to predict with; default: the run's own");
  v.optional("cluster", settings.cluster, "cluster to predict for; default: the run's own");
  v.optional("warm_up", settings.warm_up, "first steps that do not count; default: 2");
  v.optional("worst", settings.worst, "ops to list; default: 10");
  v.optional("out", settings.out, "folder for comparison.json, timelines as CSV and figures",
             {.letter = 'o'});
  v.optional("no_figure", settings.no_figure, "do not draw the figure");
  describe_json(v, settings.json);
  if (settings.warm_up) v.not_negative("warm_up", *settings.warm_up);
  v.not_negative("worst", settings.worst);
}

namespace fs = std::filesystem;

/// Writes comparison.json and, for each generation, timeline-<g>.csv and its figure; returns the
/// lines to print.
std::string write_results(const CompareSettings& args, const RunComparison& comparison,
                          int warm_up) {
  const fs::path out = *args.out;
  std::error_code error;
  fs::create_directories(out, error);
  if (error) {
    throw std::runtime_error(fmt::format("cannot create {}: {}", out.string(), error.message()));
  }
  write_file((out / "comparison.json").string(), comparison_json(args.run, comparison));
  std::string lines = fmt::format("{}\n", (out / "comparison.json").string());
  for (const GenerationComparison& generation : comparison.generations) {
    if (!generation.comparison) continue;
    const fs::path csv = out / fmt::format("timeline-{}.csv", generation.generation);
    write_file(csv.string(), timeline_csv(generation, warm_up));
    lines += csv.string() + "\n";
    if (args.no_figure) continue;
    const experiments::FigureResult figure = experiments::draw_figure(
        {(fs::path(ORRERY_SOURCE_DIR) / "tools" / "scripts").string(), "plot_compare.py", ""},
        csv.string(), out.string());
    for (const std::string& file : figure.files) lines += file + "\n";
    if (!figure.problem.empty()) lines += fmt::format("no {}\n", figure.problem);
  }
  return lines;
}

}  // namespace

namespace {

int run(const CompareSettings& args, config::Diagnostics& diagnostics) {
  if (args.out) check_out_folder("--out", *args.out, diagnostics);
  CompareRequest request{args.run, args.cluster.value_or(""), args.profile.value_or(""), {}};
  request.options.warm_up = args.warm_up.value_or(request.options.warm_up);
  request.options.worst = args.worst;
  diagnostics.raise();
  const RunComparison comparison = compare_run(request, diagnostics);
  for (const GenerationComparison& one : comparison.generations) {
    const std::size_t steps = one.measured.iterations.size();
    if (!args.warm_up || static_cast<std::size_t>(request.options.warm_up) < steps) continue;
    diagnostics.add(at_flag("--warm-up"),
                    fmt::format("generation {} has {} steps: none is left", one.generation, steps));
  }
  diagnostics.raise();
  print(args.json ? comparison_json(args.run, comparison) : comparison_text(comparison));
  if (args.out) {
    const std::string lines = write_results(args, comparison, request.options.warm_up);
    if (!args.json) print(fmt::format("\n{}", lines));
  }
  return 0;
}

}  // namespace

extern const Command kCompare;
const Command kCompare = printing_command<CompareSettings, run>(
    "compare", "Compare an executed run with its simulation, op by op",
    "compare results/first --profile results/calibrated/profile.yaml",
    "Predicted: one simulated iteration of the program that ran. Measured: mean of the middle half "
    "of its steps.");

}  // namespace orrery::tools
