/// Studies on the command line: they are run, then their results are shown as befits the command
/// that they repeat.
#pragma once
#include <string>

#include "experiments/study/run_study.h"
#include "experiments/study/study.h"
#include "tools/commands/sweep_settings.h"

namespace orrery::tools {

/// What is printed on results; the runs may be those of a dry run.
struct StudyReport {
  std::string text;
  std::string json;
  bool any_result = true;  ///< Else the exit status is 1.
};

StudyReport report_plans(const experiments::Study& study, const experiments::StudyResult& result,
                         bool dry_run);
StudyReport report_programs(const experiments::Study& study, const experiments::StudyResult& result,
                            bool dry_run);
StudyReport report_mixed_lengths(const experiments::Study& study,
                                 const experiments::StudyResult& result, bool dry_run);
StudyReport report_replays(const experiments::Study& study, const experiments::StudyResult& result,
                           bool dry_run);

/// "all runs present (8)", "3 runs done, 1 failed".
std::string done_text(const experiments::StudyResult& result);

/// Runs a study and prints its report. `problems`: those found so far; they are raised together
/// with what else is wrong. Returns the exit status.
int run_and_report(const experiments::Study& study, const SweepSettings& sweep, bool json,
                   bool timelines, config::Diagnostics& problems);

}  // namespace orrery::tools
