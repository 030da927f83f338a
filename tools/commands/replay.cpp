/// orrery replay: recovery policies on traces, then their ranking.
#include "experiments/study/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <system_error>

#include "experiments/study/files.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/commands.h"
#include "tools/commands/inputs.h"
#include "tools/commands/judge.h"
#include "tools/commands/replay_flags.h"
#include "tools/commands/replay_tables.h"
#include "tools/commands/sweep_flags.h"

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

int execute(const ReplayArgs& args) {
  config::Diagnostics diagnostics;
  const experiments::RunnerOptions options = runner_options(args, diagnostics);
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
  } else if (args.dry_run) {
    print(dry_run_text(study, result));
  } else {
    print(replay_text(study, result, ranking));
  }
  if (args.dry_run) return 0;
  return closing_status(result, !ranking.standings.empty());
}

}  // namespace orrery::tools
