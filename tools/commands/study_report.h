/// Studies on the command line: they are run, then their results are shown as befits the command
/// that they repeat.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/run_study.h"
#include "experiments/study/study.h"
#include "models/config/visitor.h"
#include "tools/cli/output.h"
#include "tools/commands/sweep_settings.h"

namespace orrery::tools {

/// What a study came to; the runs may be those of a dry run.
struct StudyReport {
  std::function<void()> print;                     ///< Tables and sentences.
  std::function<void(config::Visitor&)> document;  ///< Describes the results; null: there are none.
  int status = 0;
};
/// As its document.
void describe(config::Visitor& v, StudyReport& report);
int exit_status(const StudyReport& report);

/// A report with a described document.
template <class Document>
StudyReport report_of(std::string text, Document document, int status = 0) {
  return {[text = std::move(text)] { print(text); },
          [held = std::make_shared<Document>(std::move(document))](config::Visitor& v) {
            describe(v, *held);
          },
          status};
}

StudyReport report_plans(const experiments::Study& study, const experiments::StudyResult& result,
                         bool dry_run);
StudyReport report_programs(const experiments::Study& study, const experiments::StudyResult& result,
                            bool dry_run);
StudyReport report_mixed_lengths(const experiments::Study& study,
                                 const experiments::StudyResult& result, bool dry_run);
StudyReport report_replays(const experiments::Study& study, const experiments::StudyResult& result,
                           bool dry_run);

/// "runs: FILE" and "figure: FILE" for each that is there.
std::string files_text(const experiments::StudyResult& result);

/// What only `orrery run` says of a sweep (RunnerOptions).
struct RunExtras {
  bool timelines = false;
  bool join = false;
  std::optional<experiments::SlurmJob> slurm = std::nullopt;
};

/// Runs a study and reports on it. `problems`: those found so far; they are raised together with
/// what else is wrong. Problems of runs are notes of the call. SIGINT and SIGTERM are requests to
/// cancel meanwhile.
StudyReport run_and_report(const experiments::Study& study, const SweepSettings& sweep,
                           const RunExtras& extras, const experiments::Call& call,
                           config::Diagnostics problems);

template <class Settings>
void print_report(const StudyReport& report, const Settings&) {
  report.print();
}

}  // namespace orrery::tools
