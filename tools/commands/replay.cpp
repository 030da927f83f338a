/// orrery replay: recovery policies on traces, then their ranking.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "experiments/study/inputs.h"
#include "experiments/study/jobs.h"
#include "experiments/study/replay_jobs.h"
#include "experiments/study/study.h"
#include "models/base/text.h"
#include "models/config/document.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/intervals.h"
#include "tools/commands/replay_flags.h"
#include "tools/commands/study_report.h"

namespace orrery::tools {
namespace {

std::string jobs_text(const experiments::ReplayedJobs& replayed) {
  Table table;
  table.column("policy").column("job").number("tokens/s").number("downtime %");
  table.number("lost to other jobs %").number("interruptions").number("$/M tokens");
  std::string unable;
  for (const experiments::ReplayedTogether& together : replayed.policies) {
    for (const experiments::ReplayedJob& job : together.jobs) {
      if (job.problem) {
        unable += fmt::format("{}, {}: {}\n", job.policy, job.job, *job.problem);
        continue;
      }
      table.row({job.policy, job.job, interval_cell(job.tokens_per_second, 1, 0),
                 interval_cell(job.downtime, 100, 1), interval_cell(job.lost_to_others, 100, 2),
                 grouped(job.interruptions, 1), grouped(job.dollars_per_million, 3)});
    }
    table.row({together.policy, "all jobs", interval_cell(together.tokens_per_second, 1, 0)});
  }
  std::string text =
      section(fmt::format("Jobs on {}, trace {}, {:.3g} days, {}", replayed.cluster, replayed.trace,
                          replayed.days, counted(static_cast<std::size_t>(replayed.seeds), "seed")),
              table.text(0, colors()));
  return unable.empty() ? text : text + "\n" + section("Cannot run here", unable);
}

/// The flags over a file of jobs.
StudyReport replay_jobs(ReplaySettings args, const experiments::Call& call,
                        config::Diagnostics problems) {
  const auto refuse = [&](bool given, const std::string& key) {
    if (given) {
      problems.add(experiments::at_setting(key), "the file says it of each job", args.file);
    }
  };
  refuse(args.job.model.has_value(), "model");
  refuse(args.job.job.has_value(), "job");
  for (const auto& [key, path] : experiments::job_keys()) refuse(args.job.gives(path), key);
  refuse(args.plan.has_value(), "plan");
  refuse(args.planner.has_value(), "planner");
  experiments::ReplayJobsSettings settings;
  settings.file = args.file;
  settings.where = args.job;
  settings.cache = args.sweep.cache;
  args.file.clear();
  if (!args.job.cluster) args.job.cluster = "-";  // Neither is used.
  args.job.model = "-";
  args.planner = "own";
  const experiments::Study study = study_of(args, problems);
  settings.replay = study.settings;
  settings.seeds = study.seeds.value;
  for (const config::Value& policy : study.axes.find("policy")->items) {
    config::Located<experiments::ReplayPolicy> one;
    if (config::describe_value(policy, one, problems)) settings.policies.push_back(std::move(one));
  }
  experiments::ReplayedJobs replayed =
      experiments::replay_jobs(settings, call, std::move(problems));
  const int status = exit_status(replayed);
  std::string text = jobs_text(replayed);
  return report_of(std::move(text), std::move(replayed), status);
}

StudyReport replay(const ReplaySettings& args, const experiments::Call& call,
                   config::Diagnostics problems) {
  if (experiments::is_jobs_file(args.file)) return replay_jobs(args, call, std::move(problems));
  const experiments::Study study = study_of(args, problems);
  return run_and_report(study, args.sweep, {}, call, std::move(problems));
}

}  // namespace

void describe(config::Visitor& v, ReplaySettings& settings) {
  v.optional(
      "file", settings.file,
      "study of replays, a folder that holds one, or a file of jobs; without it the flags say what "
      "to replay",
      {.positional = true});
  v.section("Trace and policies");
  v.optional("trace", settings.trace, "trace file of `orrery trace`, or of another format");
  v.optional("generate", settings.generate,
             "draw the traces: llama3, spot, or a YAML file with settings (orrery trace generate)");
  experiments::describe_trace_flags(v, settings.format, settings.settings);
  v.optional("days", settings.days,
             "how long is replayed; default: the whole trace, 54 if generated");
  v.optional("repeat", settings.repeat, "play a trace file again where --days is longer than it");
  v.optional("policy", settings.policies,
             "name, comma-separated names, or all (default); orrery list policies",
             {.letter = 'p', .commas = true});
  v.optional("option", settings.options,
             "POLICY.NAME=VALUE: option of a policy, or of all that have it (all.NAME=VALUE); may "
             "be repeated",
             {.letter = 'o'});
  v.optional("seeds", settings.seeds,
             "how many traces are drawn, or their seeds (1,2,5); default: 5, of a trace file 1. "
             "Searches draw from them, too");
  v.optional("plan", settings.plan, "plan file that all policies begin with");
  v.optional("planner", settings.planner,
             "makes the plan that all policies begin with, or own: each with a plan of its own; "
             "default: megatron_grid where policies are compared, own for a single one");
  v.optional("expected_mtbf", settings.expected_mtbf,
             "mean time between interruptions that policies count on, as in \"3 h\" (checkpoint "
             "intervals, liveput); default: the generator's rate, or for a trace file what was "
             "seen so far");
  v.optional("planning_time", settings.planning_time,
             "fixed (default: what policies say) or measured (not reproducible)");
  experiments::describe_replay_flags(v, settings.prices, settings.background_transfers,
                                     settings.runtime);
  v.section("");
  describe(v, settings.sweep);
  describe(v, settings.job);
  if (settings.expected_mtbf) {
    v.between("expected_mtbf", *settings.expected_mtbf, experiments::kLeastTime,
              experiments::kLongestTime);
  }
}

extern const Command kReplay;
const Command kReplay = command<replay, print_report<ReplaySettings>>(
    "replay", "Replay failures and preemptions under recovery policies, and rank them",
    "replay --cluster a100_8 --model gpt3_1.3b --global-batch 64 --sequence-length 1024 --generate "
    "llama3 --days 2 --policy all --seeds 2",
    "Exit code 1: a run failed, or no policy can run. Policies that cannot run here are named with "
    "the reason.");

}  // namespace orrery::tools
