#include "tools/cli/args_twin.h"

#include <CLI/CLI.hpp>

#include "tools/cli/args_parts.h"

namespace orrery::tools {

void add_compare(CLI::App& app, CompareArgs& args) {
  app.add_option("run", args.run,
                 "folder that `orrery execute --out` wrote, one of its generations, or a run.log")
      ->required();
  app.add_option("--profile", args.profile, "profile to predict with; default: the run's own");
  app.add_option("--cluster", args.cluster, "cluster to predict for; default: the run's own");
  app.add_option("--warm-up", args.warm_up, "first steps that do not count; default: 2");
  app.add_option("--worst", args.worst, "ops to list; default: 10");
  app.add_option("--out,-o", args.out, "folder for comparison.json, timelines as CSV and figures");
  app.add_flag("--no-figure", args.no_figure, "do not draw the figure");
  add_json(app, args.json);
  app.footer(
      "Predicted: one simulated iteration of the program that ran. Measured: mean of the middle "
      "half of its steps.\n\n"
      "EXAMPLE\n  orrery compare results/first --profile results/calibrated/profile.yaml\n");
}

void add_twin(CLI::App& app, TwinArgs& args) {
  app.add_option("manifest", args.manifest, "twin manifest (schema: orrery/twin/1)")->required();
  app.add_option("--results", args.results, "where results go; default: results/twin/<name>");
  app.add_option("--steps", args.steps, "steps of each run; default: what the manifest says");
  app.add_option("--only", args.only,
                 "only runs whose names hold this text, or one of several (a,b)");
  app.add_flag("--loopback", args.loopback,
               "no emulated network: ranks talk over loopback; the results say so");
  app.add_flag("--quick", args.quick, "few repetitions of the micro-benchmarks: to try it out");
  app.add_flag("--dry-run", args.dry_run, "say what would run, and what is there already");
  app.add_flag("--no-figure", args.no_figure, "do not draw the figures");
  add_json(app, args.json);
  app.footer(
      "Runs that are finished in the results folder are kept: a second start goes on. Exit code "
      "130: interrupted.\n\n"
      "EXAMPLE\n  orrery twin experiments/twin/netlab/manifest.yaml\n");
}

}  // namespace orrery::tools
