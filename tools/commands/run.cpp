/// orrery run: all runs of a manifest, then a table of them and the figure; other experiments go to
/// the commands that know them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

#include "experiments/study/files.h"
#include "experiments/study/runner.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/commands/inputs.h"
#include "tools/commands/replay_flags.h"
#include "tools/commands/run_folder.h"
#include "tools/commands/sweep_settings.h"
#include "tools/commands/tables.h"
#include "tools/commands/twin_manifest.h"

namespace orrery::tools {
namespace {

namespace fs = std::filesystem;
using experiments::PlannedRun;
using experiments::SweepResult;

constexpr std::size_t kRowsShown = 60;
constexpr std::size_t kCellWidth = 60;  ///< Longer texts end in "...".

using Row = experiments::CsvRow;

struct RunRecord {
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
  std::vector<RunRecord> runs;
};

void describe(config::Visitor& v, RunRecord& record) {
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

RunRecord record_of(const PlannedRun& run, const std::map<std::string, Row>& rows) {
  RunRecord record;
  record.run = run.hash;
  record.axes = {run.axes.begin(), run.axes.end()};
  record.seed = static_cast<std::int64_t>(run.spec.seed);
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

/// Paths of files are shown by their names without folder and ending.
std::string axis_cell(const std::string& path, const std::string& value) {
  const bool is_file = path == "plan" || path == "profile";
  return shortened(is_file ? fs::path(value).stem().string() : value);
}

std::string runs_table(const SweepResult& result, const std::map<std::string, Row>& rows) {
  if (result.runs.empty()) return "";
  const bool seeds = std::any_of(result.runs.begin(), result.runs.end(), [&](const auto& run) {
    return run.spec.seed != result.runs.front().spec.seed;
  });
  Table table;
  for (const auto& axis : result.runs.front().axes) table.column(heading(axis.first));
  if (seeds) table.number("seed");
  table.column("status").number("iteration s").number("tokens/s").number("MFU").column("verdict");
  for (std::size_t i = 0; i < result.runs.size() && i < kRowsShown; ++i) {
    const PlannedRun& run = result.runs[i];
    const RunRecord record = record_of(run, rows);
    std::vector<std::string> cells;
    for (const auto& [path, value] : run.axes) cells.push_back(axis_cell(path, value));
    if (seeds) cells.push_back(std::to_string(run.spec.seed));
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

std::string estimate_text(const SweepResult& result) {
  if (result.total == 0) return "no run belongs to this shard";
  if (result.missing == 0) return "all runs present";
  if (result.estimate_seconds < 0) {
    return fmt::format("{} to do; no run was timed yet, so there is no estimate of the time",
                       counted(static_cast<std::size_t>(result.missing), "run"));
  }
  return fmt::format("{} to do, about {}", counted(static_cast<std::size_t>(result.missing), "run"),
                     duration(result.estimate_seconds));
}

std::string closing_text(const SweepResult& result) {
  std::string text;
  if (result.total == 0) {
    text = "no run belongs to this shard\n";
  } else if (result.missing == 0) {
    text = fmt::format("all runs present ({})\n", result.total);
  } else {
    text = fmt::format("{} done", counted(static_cast<std::size_t>(result.done), "run"));
    if (result.present > 0) text += fmt::format(", {} were present", result.present);
    if (result.failed > 0) text += fmt::format(", {} failed", result.failed);
    const int left = result.missing - result.done - result.failed;
    if (left > 0) text += fmt::format(", {} left", left);
    text += "\n";
  }
  text += fmt::format("runs: {}\n", result.runs_csv);
  for (const std::string& figure : result.figures) text += fmt::format("figure: {}\n", figure);
  return text;
}

SweepResult sweep(const experiments::Manifest& manifest, const models::Library& library,
                  const experiments::RunnerOptions& options) {
  SweepProgress shown(options);
  return experiments::run_sweep(manifest, library, options, shown.listener());
}

/// A replay study is run by the same command.
ReplaySettings replay_args(const RunSettings& args) {
  ReplaySettings replay;
  replay.file = args.manifest;
  replay.sweep = args.sweep;
  replay.json = args.json;
  return replay;
}

/// Flags that say nothing to an experiment that is no sweep of plans.
void refuse(bool given, const char* flag, const char* what) {
  if (!given) return;
  config::Diagnostics diagnostics;
  diagnostics.add(at_flag(flag), what);
  diagnostics.raise();
}

int run_other(const RunSettings& args, ExperimentKind kind) {
  refuse(args.timelines, "--timelines", "this experiment has no timelines");
  if (kind == ExperimentKind::replay) {
    config::Diagnostics problems;
    return run_replay(replay_args(args), problems);
  }
  if (kind == ExperimentKind::steps) return run_steps_file(args);
  if (kind == ExperimentKind::twin) {
    refuse(args.sweep.shard.has_value(), "--shard", "a twin's runs are not divided");
    TwinSettings twin;
    twin.manifest = args.manifest;
    if (args.sweep.results != SweepSettings().results) twin.results = args.sweep.results;
    twin.dry_run = args.sweep.dry_run;
    twin.no_figure = args.sweep.no_figure;
    twin.json = args.json;
    return run_twin(twin);
  }
  refuse(args.json, "--json", "a study of mixed lengths prints no JSON");
  MixedLengthSettings mixed;
  mixed.file = args.manifest;
  mixed.sweep = args.sweep;
  return run_mixed_length_study(mixed);
}

void print_document(const experiments::Manifest& manifest, const SweepResult& result,
                    const std::map<std::string, Row>& rows) {
  RunDocument document{.experiment = manifest.name,
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
  for (const PlannedRun& run : result.runs) document.runs.push_back(record_of(run, rows));
  print(to_json(document));
}

void print_tables(const RunSettings& args, const experiments::Manifest& manifest,
                  const SweepResult& result, const std::map<std::string, Row>& rows) {
  if (!manifest.title.empty()) print(bold(manifest.title) + "\n\n");
  print(runs_table(result, rows) + "\n");
  if (args.sweep.dry_run) {
    print(fmt::format("dry run: {}\nresults would go to {}\n", estimate_text(result),
                      result.results_folder));
  } else {
    print(closing_text(result));
  }
}

}  // namespace

void describe(config::Visitor& v, RunSettings& settings) {
  v.required("manifest", settings.manifest,
             "manifest.yaml, replay.yaml or steps.yaml, or a folder: all experiments below it",
             {.positional = true});
  describe(v, settings.sweep);
  v.optional("timelines", settings.timelines, "write a Perfetto timeline for each run");
  describe_json(v, settings.json);
}

namespace {

int run(const RunSettings& given) {
  config::Diagnostics diagnostics;
  const std::vector<std::string> files = experiments_of(given.manifest, diagnostics);
  diagnostics.raise();
  if (files.size() > 1) return run_folder(given, files);
  RunSettings args = given;
  args.manifest = files.front();
  if (const ExperimentKind kind = kind_of(args.manifest); kind != ExperimentKind::manifest) {
    return run_other(args, kind);
  }
  experiments::RunnerOptions options = args.sweep.options();
  options.timelines = args.timelines;
  const models::Library library = open_library(diagnostics);
  const experiments::Manifest manifest = experiments::load_manifest(args.manifest, diagnostics);
  if (!diagnostics.empty()) experiments::check_runs(manifest, library, diagnostics);
  diagnostics.raise();
  const SweepResult result = sweep(manifest, library, options);
  const std::map<std::string, Row> rows = read_rows(result.runs_csv);
  if (args.json) {
    print_document(manifest, result, rows);
  } else {
    print_tables(args, manifest, result, rows);
  }
  for (const std::string& problem : result.problems) fmt::print(stderr, "orrery: {}\n", problem);
  if (result.interrupted) {
    fmt::print(stderr, "orrery: interrupted; {} kept in {}, the same command goes on from there\n",
               counted(static_cast<std::size_t>(result.present + result.done), "result"),
               result.results_folder);
    return kInterrupted;
  }
  return result.problems.empty() ? 0 : 1;
}

}  // namespace

extern const Command kRun;
const Command kRun = printing_command<RunSettings, run>(
    "run", "Run an experiment: all runs of a manifest, and the figure that they end in",
    "run experiments/hexiscale/case_study --no-figure");

}  // namespace orrery::tools
