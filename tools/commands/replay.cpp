/// orrery replay: recovery policies on traces, then their ranking.
#include <utility>

#include "experiments/study/inputs.h"
#include "experiments/study/study.h"
#include "tools/cli/command.h"
#include "tools/commands/replay_flags.h"
#include "tools/commands/study_report.h"

namespace orrery::tools {
namespace {

StudyReport replay(const ReplaySettings& args, const experiments::Call& call,
                   config::Diagnostics problems) {
  const experiments::Study study = study_of(args, problems);
  return run_and_report(study, args.sweep, {}, call, std::move(problems));
}

}  // namespace

void describe(config::Visitor& v, ReplaySettings& settings) {
  v.optional(
      "file", settings.file,
      "study of replays, or a folder that holds one; without it the flags say what to replay",
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
  if (settings.expected_mtbf) v.positive("expected_mtbf", *settings.expected_mtbf);
}

extern const Command kReplay;
const Command kReplay = command<replay, print_report<ReplaySettings>>(
    "replay", "Replay failures and preemptions under recovery policies, and rank them",
    "replay --cluster a100_8 --model gpt3_1.3b --global-batch 64 --sequence-length 1024 --generate "
    "llama3 --days 2 --policy all --seeds 2",
    "Exit code 1: a run failed, or no policy can run. Policies that cannot run here are named with "
    "the reason.");

}  // namespace orrery::tools
