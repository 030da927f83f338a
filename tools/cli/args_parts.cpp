#include "tools/cli/args_parts.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace orrery::tools {

std::string example(const std::string& command) { return "EXAMPLE\n  orrery " + command + "\n"; }

void add_job(CLI::App& app, JobArgs& job, bool batch_from_plan) {
  app.add_option("--cluster,-c", job.cluster, "cluster of the library, or a YAML file")
      ->group("Job");
  app.add_option("--model,-m", job.model,
                 "model of the library, a YAML file, or a Hugging Face config.json")
      ->group("Job");
  app.add_option("--job,-j", job.job, "job file; the flags below override what it says")
      ->group("Job");
  app.add_option("--global-batch,-b", job.global_batch,
                 batch_from_plan
                     ? std::string("samples per optimizer step; default: the plan's")
                     : fmt::format("samples per optimizer step; default: {}", kDefaultBatch))
      ->group("Job");
  app.add_option("--sequence-length,-s", job.sequence_length,
                 batch_from_plan ? std::string("tokens per sample")
                                 : fmt::format("tokens per sample; default: {}", kDefaultLength))
      ->group("Job");
  app.add_option("--dtype", job.dtype, "number format of weights and activations; default: bf16")
      ->group("Job");
  app.add_option("--recompute", job.recompute, "allowed: none, selective, full; comma-separated")
      ->group("Job");
  app.add_option("--zero-stages", job.zero_stages, "allowed ZeRO stages, 0 to 3; comma-separated")
      ->group("Job");
  app.add_option("--schedules", job.schedules, "allowed pipeline schedules; comma-separated")
      ->group("Job");
  app.add_option("--max-tensor-parallel", job.max_tensor_parallel,
                 "largest tensor-parallel degree; default: bounded by the node")
      ->group("Job");
  app.add_option("--max-micro-batch-size", job.max_micro_batch_size, "samples; default: 8")
      ->group("Job");
  app.add_flag("--sequence-parallel", job.sequence_parallel, "allow sequence parallelism")
      ->group("Job");
  app.add_option("--profile", job.profile, "measured times (profile YAML) instead of the roofline")
      ->group("Job");
  app.add_option("--scale-profile", job.scale_profile,
                 "FROM=TO: the profile's times of GPU type FROM stand, scaled, for TO")
      ->group("Job");
}

void add_json(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "print one JSON document instead of tables");
}

void add_replay(CLI::App& app, ReplayArgs& args) {
  app.add_option(
      "file", args.file,
      "replay.yaml, or a folder that holds one; without it the flags say what to replay");
  const auto option = [&](const char* name, Text& text, const char* what) {
    app.add_option(name, text, what)->group("Trace and policies");
  };
  option("--trace", args.trace, "trace file of `orrery trace`, or of another format");
  option("--format", args.format, "of a trace file of others (orrery trace import --help)");
  option("--generate", args.generate,
         "draw the traces: llama3, spot, or a YAML file with settings (orrery trace generate)");
  app.add_option("--set", args.settings,
                 "NAME=VALUE: setting of the generator or of the format; may be repeated")
      ->allow_extra_args(false)
      ->group("Trace and policies");
  option("--days", args.days, "how long is replayed; default: the whole trace, 54 if generated");
  app.add_flag("--repeat", args.repeat, "play a trace file again where --days is longer than it")
      ->group("Trace and policies");
  option("--policy,-p", args.policies,
         "name, comma-separated names, or all (default); orrery list policies");
  app.add_option(
         "--option,-o", args.options,
         "POLICY.NAME=VALUE: option of a policy, or of all that have it (all.NAME=VALUE); may "
         "be repeated")
      ->allow_extra_args(false)
      ->group("Trace and policies");
  option("--seeds", args.seeds,
         "how many traces are drawn, or their seeds (1,2,5); default: 1. Searches draw from them, "
         "too");
  option("--plan", args.plan, "plan file to begin with; default: the policy's own plan");
  option(
      "--expected-mtbf", args.expected_mtbf,
      "mean time between interruptions that policies count on, as in \"3 h\" (checkpoint "
      "intervals, liveput); default: the generator's rate, or the mean of the trace file itself");
  option("--planning-time", args.planning_time,
         "fixed (default: what policies say) or measured (not reproducible)");
  option("--prices", args.prices, "on_demand (default) or spot, where the trace names none");
  app.add_flag("--background-transfers", args.background,
               "what checkpoints copy beside training slows the iterations of that time: up to "
               "twice as many simulations")
      ->group("Trace and policies");
  app.add_option("--results", args.results, "where results go; default: results");
  app.add_option("--workers", args.workers, "processes at once; default: one for each core");
  app.add_option("--shard", args.shard, "I/N: only every N-th run, from the I-th");
  app.add_flag("--dry-run", args.dry_run, "print the runs and an estimate of the time");
  app.add_flag("--no-figure", args.no_figure, "do not draw the figure of the file");
  app.add_flag("--quiet,-q", args.quiet, "no progress");
  add_json(app, args.json);
  add_job(app, args.job, false);
  app.footer(
      "Exit code 1: a run failed, or no policy can run. Policies that cannot run here are named "
      "with the reason.\n\n" +
      example("replay --cluster a100_8 --model gpt3_1.3b --global-batch 64 --sequence-length 1024 "
              "--generate llama3 --days 2 --policy all --seeds 2"));
}

}  // namespace orrery::tools
