#include "tools/commands/study_report.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "experiments/study/files.h"
#include "experiments/study/inputs.h"
#include "experiments/study/points.h"
#include "experiments/study/run_tasks.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

namespace fs = std::filesystem;
using experiments::Study;
using experiments::StudyResult;
using experiments::Task;

constexpr std::size_t kRowsShown = 60;
constexpr std::size_t kCellWidth = 60;  ///< Longer texts end in "...".

using Row = experiments::CsvRow;

struct ShownRun {
  std::string run;
  std::map<std::string, std::string> axes;
  std::int64_t seed = 0;
  std::string status;  ///< ok, infeasible, failed; "missing" if it has not run.
  std::string reason;
  std::optional<double> iteration_seconds;
  std::optional<double> tokens_per_second;
  std::optional<double> mfu;
  std::optional<bool> fits;
  std::string verdict;
};

/// What `--json` prints.
struct RunDocument {
  std::string experiment;
  std::string results;
  std::string runs_csv;
  std::vector<std::string> figures;
  std::vector<std::string> problems;
  int total = 0;
  int present = 0;
  int done = 0;
  int failed = 0;
  int missing = 0;
  bool interrupted = false;
  std::optional<double> estimate_seconds;
  std::vector<ShownRun> runs;
};

void describe(config::Visitor& v, ShownRun& record) {
  v.title("Run");
  v.required("run", record.run, "content hash: name of its folder");
  v.required("axes", record.axes, "of the sweep");
  v.required("seed", record.seed, "");
  v.required("status", record.status, "");
  v.required("reason", record.reason, "");
  v.optional("iteration_seconds", record.iteration_seconds, "");
  v.optional("tokens_per_second", record.tokens_per_second, "");
  v.optional("mfu", record.mfu, "");
  v.optional("fits", record.fits, "");
  v.required("verdict", record.verdict, "");
}

void describe(config::Visitor& v, RunDocument& document) {
  v.title("Sweep");
  v.required("experiment", document.experiment, "");
  v.required("results", document.results, "");
  v.required("runs_csv", document.runs_csv, "");
  v.required("figures", document.figures, "");
  v.required("problems", document.problems, "");
  v.required("total", document.total, "");
  v.required("present", document.present, "");
  v.required("done", document.done, "");
  v.required("failed", document.failed, "");
  v.required("missing", document.missing, "");
  v.required("interrupted", document.interrupted, "");
  v.optional("estimate_seconds", document.estimate_seconds, "of a dry run");
  v.required("runs", document.runs, "");
}

struct ShownStep {
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
  std::vector<ShownStep> steps;
};

void describe(config::Visitor& v, ShownStep& record) {
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

/// runs.csv by run; empty if there is none yet.
std::map<std::string, Row> read_rows(const std::string& path) {
  std::map<std::string, Row> rows;
  for (Row& row : experiments::read_csv_rows(path)) rows[row["run"]] = std::move(row);
  return rows;
}

std::optional<double> number(const Row& row, const std::string& column) {
  const auto at = row.find(column);
  if (at == row.end() || at->second.empty()) return std::nullopt;
  double value = 0;
  const char* end = at->second.data() + at->second.size();
  return std::from_chars(at->second.data(), end, value).ec == std::errc()
             ? std::optional<double>(value)
             : std::nullopt;
}

ShownRun shown(const Task& run, const std::map<std::string, Row>& rows) {
  ShownRun record;
  record.run = run.hash;
  record.axes = {run.point.axes.begin(), run.point.axes.end()};
  record.seed = run.point.seed;
  const auto at = rows.find(run.hash);
  if (at == rows.end()) {
    record.status = "missing";
    return record;
  }
  const Row& row = at->second;
  const auto text = [&](const char* column) {
    const auto cell = row.find(column);
    return cell == row.end() ? std::string() : cell->second;
  };
  record.status = text("status");
  record.reason = text("reason");
  record.iteration_seconds = number(row, "iteration_time_s");
  record.tokens_per_second = number(row, "tokens_per_s");
  record.mfu = number(row, "mfu");
  if (!text("fits").empty()) record.fits = text("fits") == "true";
  record.verdict = text("memory_verdict");
  return record;
}

std::string shortened(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() > kCellWidth) text = text.substr(0, kCellWidth - 3) + "...";
  return text;
}

/// "planner.name" is headed "planner", "job.global_batch" "global_batch".
std::string heading(const std::string& path) {
  if (path == "planner.name") return "planner";
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? path : path.substr(dot + 1);
}

/// Paths of files are shown by their names without folder and ending; "": on no such axis.
std::string axis_cell(const std::string& path, const std::string& value) {
  const bool is_file = path == "plan" || path == "profile";
  return shortened(is_file ? fs::path(value).stem().string() : value);
}

std::string runs_table(const Study& study, const StudyResult& result,
                       const std::map<std::string, Row>& rows) {
  if (result.runs.empty()) return "";
  const bool seeds = std::any_of(result.runs.begin(), result.runs.end(), [&](const auto& run) {
    return run.point.seed != result.runs.front().point.seed;
  });
  Table table;
  const std::vector<std::string> axes = experiments::axis_names(study);
  for (const std::string& axis : axes) table.column(heading(axis));
  if (seeds) table.number("seed");
  table.column("status").number("iteration s").number("tokens/s").number("MFU").column("verdict");
  for (std::size_t i = 0; i < result.runs.size() && i < kRowsShown; ++i) {
    const Task& run = result.runs[i];
    const ShownRun record = shown(run, rows);
    std::vector<std::string> cells;
    for (const std::string& axis : axes) cells.push_back(axis_cell(axis, run.point.on(axis)));
    if (seeds) cells.push_back(std::to_string(run.point.seed));
    cells.push_back(record.status);
    cells.push_back(record.iteration_seconds ? seconds_cell(*record.iteration_seconds) : "-");
    cells.push_back(record.tokens_per_second ? grouped(*record.tokens_per_second, 0) : "-");
    cells.push_back(record.mfu ? percent(*record.mfu) : "-");
    if (record.fits) {
      cells.push_back(*record.fits ? good("fits") : bad("does not fit: " + record.verdict));
    } else {
      cells.push_back(shortened(record.reason));
    }
    table.row(std::move(cells));
  }
  std::string text = table.text(0, colors());
  if (result.runs.size() > kRowsShown) {
    text +=
        fmt::format("... and {} more in {}\n", result.runs.size() - kRowsShown, result.runs_csv);
  }
  return text;
}

std::string estimate_text(const StudyResult& result) {
  if (result.total == 0) return "no run belongs to this shard";
  if (result.missing == 0) return "all runs present";
  if (result.estimate_seconds < 0) {
    return fmt::format("{} to do; no run was timed yet, so there is no estimate of the time",
                       counted(result.missing, "run"));
  }
  return fmt::format("{} to do, about {}", counted(result.missing, "run"),
                     duration(result.estimate_seconds));
}

/// "all runs present (8)", "3 runs done, 1 failed".
std::string done_text(const StudyResult& result) {
  if (result.total == 0) return "no run belongs to this shard\n";
  if (result.missing == 0) return fmt::format("all runs present ({})\n", result.total);
  std::string text = fmt::format("{} done", counted(result.done, "run"));
  if (result.elsewhere > 0 && result.elsewhere < result.done) {
    text += fmt::format(" ({} of them by other calls)", result.elsewhere);
  }
  if (result.present > 0) text += fmt::format(", {} were present", result.present);
  if (result.failed > 0) text += fmt::format(", {} failed", result.failed);
  const int left = result.missing - result.done - result.failed;
  if (left > 0) text += fmt::format(", {} left", left);
  return text + "\n";
}

RunDocument document_of(const Study& study, const StudyResult& result,
                        const std::map<std::string, Row>& rows) {
  RunDocument document{.experiment = study.name,
                       .results = result.results_folder,
                       .runs_csv = result.runs_csv,
                       .figures = result.figures,
                       .problems = result.problems,
                       .total = result.total,
                       .present = result.present,
                       .done = result.done,
                       .failed = result.failed,
                       .missing = result.missing,
                       .interrupted = result.interrupted,
                       .estimate_seconds = std::nullopt,
                       .runs = {}};
  if (result.estimate_seconds >= 0) document.estimate_seconds = result.estimate_seconds;
  for (const Task& run : result.runs) document.runs.push_back(shown(run, rows));
  return document;
}

/// As runs.csv has them.
std::vector<ShownStep> steps_of(const StudyResult& result, const std::map<std::string, Row>& rows) {
  std::vector<ShownStep> records;
  for (const Task& run : result.runs) {
    const auto at = rows.find(run.hash);
    const auto cell = [&](const char* column) {
      return at == rows.end() || !at->second.contains(column) ? "" : at->second.at(column);
    };
    const std::string status = cell("status");
    records.push_back(
        {run.in_words, status.empty() ? "missing" : status, cell("reason"), cell("output")});
  }
  return records;
}

using Report = StudyReport (*)(const Study&, const StudyResult&, bool dry_run);

Report report_for(const std::string& command) {
  static const std::map<std::string, Report> kReports = {{"program", report_programs},
                                                         {"mixed_length", report_mixed_lengths},
                                                         {"replay", report_replays}};
  const auto found = kReports.find(command);
  return found == kReports.end() ? report_plans : found->second;
}

}  // namespace

std::string files_text(const StudyResult& result) {
  std::string text;
  std::error_code error;
  if (fs::exists(result.runs_csv, error)) {
    text += fmt::format("runs: {}\n", result.runs_csv);
  }
  for (const std::string& figure : result.figures) text += fmt::format("figure: {}\n", figure);
  return text;
}

StudyReport report_plans(const Study& study, const StudyResult& result, bool dry_run) {
  const std::map<std::string, Row> rows = read_rows(result.runs_csv);
  std::string text;
  if (!study.title.empty()) text += bold(study.title) + "\n\n";
  for (const std::string& skipped : result.skipped) text += skipped + "\n";
  if (result.total == 0 && !result.skipped.empty()) {
    return report_of(std::move(text), document_of(study, result, rows));
  }
  text += runs_table(study, result, rows) + "\n";
  text += dry_run ? fmt::format("dry run: {}\nresults would go to {}\n", estimate_text(result),
                                result.results_folder)
                  : done_text(result) + files_text(result);
  return report_of(std::move(text), document_of(study, result, rows));
}

StudyReport report_programs(const Study& study, const StudyResult& result, bool dry_run) {
  const std::vector<ShownStep> steps = steps_of(result, read_rows(result.runs_csv));
  const StepsDocument document{study.name,      result.results_folder, result.figures,
                               result.problems, result.skipped,        steps};
  std::string text = study.title.empty() ? "" : bold(study.title) + "\n\n";
  for (const std::string& skipped : result.skipped) text += skipped + "\n";
  if (!result.skipped.empty()) return report_of(text, document);
  Table table;
  table.column("step").column("status").column("output");
  for (const ShownStep& step : steps) table.row({step.step, step.status, step.output});
  text += table.text(0, colors()) + "\n";
  if (dry_run) {
    text += fmt::format("dry run: {} to do\nresults would go to {}\n",
                        counted(result.missing, "step"), result.results_folder);
    return report_of(text, document);
  }
  text += fmt::format("results: {}\n", result.results_folder);
  for (const std::string& figure : result.figures) text += fmt::format("figure: {}\n", figure);
  return report_of(text, document);
}

void describe(config::Visitor& v, StudyReport& report) {
  if (report.document) return report.document(v);
  RunDocument none;
  describe(v, none);
}

int exit_status(const StudyReport& report) { return report.status; }

StudyReport run_and_report(const Study& study, const SweepSettings& sweep, const RunExtras& extras,
                           const experiments::Call& call, config::Diagnostics problems) {
  experiments::RunnerOptions options = sweep.options();
  options.timelines = extras.timelines;
  options.join = extras.join;
  options.slurm = extras.slurm;
  const models::Library library = experiments::open_library(problems);
  if (!problems.empty()) experiments::check_study(study, library, problems);
  problems.raise();
  if (!sweep.dry_run) {
    options.cache = sweep.cache;
    options.answers = sweep.cache.open([&](const std::string& note) { call.note(note); });
  }
  experiments::Call of_sweep = call;
  if (sweep.quiet || sweep.dry_run) of_sweep.on_progress = nullptr;
  const StudyResult result = [&] {
    const experiments::Cancellation::Listener listener(call.cancellation, {SIGINT, SIGTERM});
    return experiments::run_study(study, library, options, of_sweep);
  }();
  for (const std::string& problem : result.problems) call.note(problem);
  StudyReport report = report_for(study.command.value)(study, result, sweep.dry_run);
  if (extras.join && !sweep.dry_run) {  // The tables are another call's.
    report.print = [text = done_text(result)] { print(text); };
  }
  if (!result.problems.empty()) report.status = 1;
  if (result.interrupted) {
    call.note(fmt::format("interrupted; {} kept in {}, the same command goes on from there",
                          counted(result.present + result.done, "result"), result.results_folder));
    report.status = experiments::kInterrupted;
  }
  return report;
}

}  // namespace orrery::tools
