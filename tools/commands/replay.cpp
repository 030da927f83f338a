/// orrery replay: recovery policies on traces, then their ranking.
#include "experiments/study/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <system_error>

#include "experiments/study/files.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/inputs.h"
#include "tools/commands/replay_flags.h"
#include "tools/commands/replay_tables.h"
#include "tools/commands/sweep_settings.h"

namespace orrery::tools {
namespace {

using experiments::ReplayStudy;
using experiments::ReplayStudyResult;

ReplayStudyResult sweep(const ReplayStudy& study, const models::Library& library,
                        const experiments::RunnerOptions& options) {
  SweepProgress shown(options);
  return experiments::run_replay_study(study, library, options, shown.listener());
}

std::string dry_run_text(const ReplayStudy& study, const ReplayStudyResult& result) {
  Table table;
  table.column("case").column("policy").column("options").number("seed").column("run");
  for (const experiments::ReplayRun& run : result.runs) {
    std::string options;
    for (const auto& [name, value] : run.policy.options) {
      options += fmt::format("{}{}={}", options.empty() ? "" : " ", name, value);
    }
    table.row({study.cases[run.of_case].name, run.policy.shown(), options, std::to_string(run.seed),
               run.hash});
  }
  std::string text = table.text(0, colors());
  const auto missing = counted(static_cast<std::size_t>(result.missing), "run");
  text += result.estimate_seconds < 0
              ? fmt::format("\ndry run: {} to do; no run was timed yet\n", missing)
              : fmt::format("\ndry run: {} to do, about {}\n", missing,
                            duration(result.estimate_seconds));
  for (const std::string& note : experiments::options_not_of_all(study.policies)) {
    text += note + "\n";
  }
  for (const std::string& skipped : result.skipped) text += skipped + "\n";
  return text + fmt::format("results would go to {}\n", result.results_folder);
}

/// Status after a sweep; says what went wrong.
int closing_status(const ReplayStudyResult& result, bool any_standing) {
  for (const std::string& problem : result.problems) fmt::print(stderr, "orrery: {}\n", problem);
  if (result.interrupted) {
    fmt::print(stderr, "orrery: interrupted; {} kept in {}, the same command goes on from there\n",
               counted(static_cast<std::size_t>(result.present + result.done), "result"),
               result.results_folder);
    return kInterrupted;
  }
  if (!result.problems.empty()) return 1;
  return any_standing || result.total == 0 ? 0 : 1;
}

}  // namespace

void describe(config::Visitor& v, ReplaySettings& settings) {
  v.optional("file", settings.file,
             "replay.yaml, or a folder that holds one; without it the flags say what to replay",
             {.positional = true});
  v.section("Trace and policies");
  v.optional("trace", settings.trace, "trace file of `orrery trace`, or of another format");
  v.optional("format", settings.format, "of a trace file of others (orrery trace import --help)");
  v.optional("generate", settings.generate,
             "draw the traces: llama3, spot, or a YAML file with settings (orrery trace generate)");
  v.optional("set", settings.settings,
             "NAME=VALUE: setting of the generator or of the format; may be repeated");
  v.optional("days", settings.days,
             "how long is replayed; default: the whole trace, 54 if generated");
  v.optional("repeat", settings.repeat, "play a trace file again where --days is longer than it");
  v.optional("policy", settings.policies,
             "name, comma-separated names, or all (default); orrery list policies",
             {.letter = 'p'});
  v.optional("option", settings.options,
             "POLICY.NAME=VALUE: option of a policy, or of all that have it (all.NAME=VALUE); may "
             "be repeated",
             {.letter = 'o'});
  v.optional("seeds", settings.seeds,
             "how many traces are drawn, or their seeds (1,2,5); default: 1. Searches draw from "
             "them, too");
  v.optional("plan", settings.plan, "plan file to begin with; default: the policy's own plan");
  v.optional(
      "expected_mtbf", settings.expected_mtbf,
      "mean time between interruptions that policies count on, as in \"3 h\" (checkpoint "
      "intervals, liveput); default: the generator's rate, or the mean of the trace file itself");
  v.optional("planning_time", settings.planning_time,
             "fixed (default: what policies say) or measured (not reproducible)");
  v.optional("prices", settings.prices, "on_demand (default) or spot, where the trace names none");
  v.optional("background_transfers", settings.background,
             "what checkpoints copy beside training slows the iterations of that time: up to twice "
             "as many simulations");
  v.section("");
  describe(v, settings.sweep);
  describe_json(v, settings.json);
  describe(v, settings.job, BatchDefault::fixed);
  if (settings.expected_mtbf) v.positive("expected_mtbf", *settings.expected_mtbf);
}

int run_replay(const ReplaySettings& args, config::Diagnostics& diagnostics) {
  const experiments::RunnerOptions options = args.sweep.options();
  const models::Library library = open_library(diagnostics);
  const ReplayStudy study = study_of(args, diagnostics);
  if (!diagnostics.empty()) experiments::check_replay_study(study, library, diagnostics);
  diagnostics.raise();
  const ReplayStudyResult result = sweep(study, library, options);
  std::vector<std::string> axes;
  for (const auto& axis : study.sweep) axes.push_back(axis.first);
  const experiments::Ranking ranking =
      experiments::rank_policies(experiments::read_csv_rows(result.runs_csv), axes);
  if (args.json) {
    print(replay_document(study, result, ranking));
  } else if (args.sweep.dry_run) {
    print(dry_run_text(study, result));
  } else {
    print(replay_text(study, result, ranking));
  }
  if (args.sweep.dry_run) return 0;
  return closing_status(result, !ranking.standings.empty());
}

extern const Command kReplay;
const Command kReplay = printing_command<ReplaySettings, run_replay>(
    "replay", "Replay failures and preemptions under recovery policies, and rank them",
    "replay --cluster a100_8 --model gpt3_1.3b --global-batch 64 --sequence-length 1024 --generate "
    "llama3 --days 2 --policy all --seeds 2",
    "Exit code 1: a run failed, or no policy can run. Policies that cannot run here are named with "
    "the reason.");

}  // namespace orrery::tools
