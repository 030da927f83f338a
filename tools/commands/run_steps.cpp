/// orrery run of a steps file: its commands, a table of them, the figure.
#include <fmt/format.h>

#include <map>

#include "experiments/study/files.h"
#include "experiments/study/steps.h"
#include "tools/cli/command.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/commands/inputs.h"
#include "tools/commands/run_folder.h"
#include "tools/commands/sweep_settings.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

using experiments::StepsFile;
using experiments::StepsResult;

struct StepRunRecord {
  std::string step;
  std::string status;
  std::string reason;
  std::string output;  ///< Below the results folder.
};

struct StepsDocument {
  std::string experiment;
  std::string results;
  std::vector<std::string> figures;
  std::vector<std::string> problems;
  std::vector<std::string> skipped;
  std::vector<StepRunRecord> steps;
};

void describe(config::Visitor& v, StepRunRecord& record) {
  v.title("Step");
  v.required("step", record.step, "");
  v.required("status", record.status, "");
  v.required("reason", record.reason, "");
  v.required("output", record.output, "");
}

void describe(config::Visitor& v, StepsDocument& document) {
  v.title("Steps");
  v.required("experiment", document.experiment, "");
  v.required("results", document.results, "");
  v.required("figures", document.figures, "");
  v.required("problems", document.problems, "");
  v.required("skipped", document.skipped, "");
  v.required("steps", document.steps, "");
}

/// Of all steps, as runs.csv has them.
std::vector<StepRunRecord> records_of(const StepsFile& file, const StepsResult& result) {
  std::map<std::string, std::map<std::string, std::string>> rows;
  if (!result.runs_csv.empty()) {
    for (auto& row : experiments::read_csv_rows(result.runs_csv)) rows[row["step"]] = row;
  }
  std::vector<StepRunRecord> records;
  for (const experiments::Step& step : file.steps) {
    auto& row = rows[step.name];
    records.push_back({step.name, row["status"].empty() ? "missing" : row["status"], row["reason"],
                       row["output"]});
  }
  return records;
}

std::string text_of(const StepsFile& file, const StepsResult& result, bool dry_run) {
  std::string text = file.title.empty() ? "" : bold(file.title) + "\n\n";
  for (const std::string& skipped : result.skipped) text += skipped + "\n";
  if (!result.skipped.empty()) return text;
  Table table;
  table.column("step").column("status").column("output");
  for (const StepRunRecord& record : records_of(file, result)) {
    table.row({record.step, record.status, record.output});
  }
  text += table.text(0, colors()) + "\n";
  if (dry_run) {
    return text + fmt::format("dry run: {} to do\nresults would go to {}\n",
                              counted(static_cast<std::size_t>(result.missing), "step"),
                              result.results_folder);
  }
  text += fmt::format("results: {}\n", result.results_folder);
  for (const std::string& figure : result.figures) text += fmt::format("figure: {}\n", figure);
  return text;
}

}  // namespace

int run_steps_file(const RunSettings& args) {
  config::Diagnostics diagnostics;
  const experiments::RunnerOptions options = args.sweep.options();
  const StepsFile file = experiments::load_steps(args.manifest, diagnostics);
  diagnostics.raise();
  const StepsResult result = [&] {
    SweepProgress shown(options);
    return experiments::run_steps(file, options, shown.listener());
  }();
  if (args.json) {
    print(to_json(StepsDocument{file.name, result.results_folder, result.figures, result.problems,
                                result.skipped, records_of(file, result)}));
  } else {
    print(text_of(file, result, args.sweep.dry_run));
  }
  for (const std::string& problem : result.problems) fmt::print(stderr, "orrery: {}\n", problem);
  if (result.interrupted) {
    fmt::print(stderr, "orrery: interrupted; finished steps are kept in {}\n",
               result.results_folder);
    return kInterrupted;
  }
  return result.problems.empty() ? 0 : 1;
}

}  // namespace orrery::tools
