#include "tools/cli/args_trace.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

namespace orrery::tools {
namespace {

void add_generate(CLI::App& app, TraceGenerateArgs& args) {
  app.add_option("generator", args.generator,
                 "generator of the library (llama3: failures; spot, bamboo_p3: spot nodes), or a "
                 "YAML file")
      ->required();
  app.add_option("--cluster,-c", args.cluster, "cluster of the library, or a YAML file");
  app.add_option("--gpus", args.gpus, "instead of a cluster: so many GPUs in equal nodes");
  app.add_option("--gpus-per-node", args.gpus_per_node, "default: 8");
  app.add_option("--gpu-type", args.gpu_type, "of the equal nodes; default: not said");
  app.add_option("--days", args.days, "length of the trace; default: 54");
  app.add_option("--seed", args.seed, "default: 0");
  app.add_flag("--conditioned", args.conditioned,
               "exactly the expected number of failures of each cause, at uniform times");
  app.add_option("--set", args.settings,
                 "KEY.PATH=VALUE: replaces a value of the generator; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--output,-o", args.output, "write to this file; default: standard output");
  app.footer(
      "EXAMPLE\n  orrery trace generate llama3 --cluster llama3_16384 --days 54 --seed 1 "
      "--set failures.slow.per_1000_gpu_days=0\n");
}

void add_stats(CLI::App& app, TraceStatsArgs& args) {
  app.add_option("trace", args.file, "trace file of ours (orrery trace import reads others)")
      ->required();
  app.add_option("--csv", args.csv, "write the GPUs that are there over time, by type");
  app.add_option("--figure", args.figure, "draw them: FILE.pdf or FILE.png");
  app.add_flag("--json", args.json, "print one JSON document instead of tables");
  app.footer("EXAMPLE\n  orrery trace stats tests/traces/small.csv\n");
}

void add_import(CLI::App& app, TraceImportArgs& args) {
  app.add_option("format", args.format, "bamboo, oobleck, parcae, aws, gcp or skypilot")
      ->required();
  app.add_option("file", args.files, "one, or several that make one trace: one per GPU type")
      ->required();
  app.add_option("--gpu-type", args.gpu_types, "of each file, in their order")
      ->allow_extra_args(false);
  app.add_option("--gpus-per-node", args.gpus_per_node, "default: 1");
  app.add_option("--order", args.order,
                 "which node leaves where a format only says how many are there: "
                 "last_in_first_out (default) or random");
  app.add_option("--seed", args.seed, "of --order random; default: 0");
  app.add_option("--days", args.days, "repeat the trace until then; default: as long as it is");
  app.add_option("--output,-o", args.output, "write to this file; default: standard output");
  app.footer(
      "EXAMPLE\n  orrery trace import bamboo tests/traces/bamboo.csv --gpu-type V100-16GB\n");
}

}  // namespace

CLI::App* TraceCommands::chosen() const {
  const auto at =
      std::find_if(apps.begin(), apps.end(), [](const CLI::App* app) { return app->parsed(); });
  return at == apps.end() ? nullptr : *at;
}

Command TraceCommands::command() const {
  const CLI::App* app = chosen();
  if (app == apps[0]) return generate;
  if (app == apps[1]) return stats;
  return import_files;
}

void add_trace(CLI::App& app, TraceCommands& commands) {
  app.require_subcommand(1);
  app.footer(
      "orrery trace COMMAND --help shows its flags and an example.\n\n"
      "EXAMPLE\n  orrery trace generate spot --gpus 64 --days 2 --seed 3\n");
  commands.apps = {
      app.add_subcommand("generate", "Draw a trace of failures and spot nodes"),
      app.add_subcommand("stats", "Counts, times between failures, availability, and its figure"),
      app.add_subcommand("import", "Read traces of Bamboo, Oobleck, Parcae, AWS, GCP, SkyPilot")};
  for (CLI::App* command : commands.apps) command->group("Commands");
  add_generate(*commands.apps[0], commands.generate);
  add_stats(*commands.apps[1], commands.stats);
  add_import(*commands.apps[2], commands.import_files);
}

}  // namespace orrery::tools
