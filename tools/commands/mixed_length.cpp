/// orrery mixed-length: systems that train on sequences of mixed lengths, step by step.
#include "experiments/study/mixed_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <vector>

#include "experiments/study/commands.h"
#include "experiments/study/exports.h"
#include "experiments/study/files.h"
#include "experiments/study/inputs.h"
#include "experiments/study/mixed_length_study.h"
#include "experiments/study/points.h"
#include "experiments/study/run_study.h"
#include "experiments/study/study_files.h"
#include "models/config/document.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/run_folder.h"
#include "tools/commands/study_report.h"
#include "tools/commands/sweep_settings.h"

namespace orrery::tools {
namespace {

namespace fs = std::filesystem;
using experiments::LoadedMixedLength;
using experiments::MixedLengthSummary;
using experiments::Point;
using experiments::Study;
using experiments::StudyResult;

std::string summary(const std::vector<MixedLengthSummary>& systems) {
  Table table;
  table.column("case").column("system").number("mean s").number("10 %").number("90 %");
  table.number("switching s").number("switches").number("computed tokens");
  for (const MixedLengthSummary& one : systems) {
    if (one.status != "ok") {
      table.row({one.of_case, one.system, one.status.empty() ? "not run" : one.status, "", "", "",
                 "", ""});
      continue;
    }
    table.row({one.of_case, one.system, fmt::format("{:.3f}", one.mean.value),
               fmt::format("{:.3f}", one.low.value), fmt::format("{:.3f}", one.high.value),
               fmt::format("{:.3f}", one.switching.value), fmt::format("{:.2f}", one.switches),
               grouped(one.computed_tokens, 0)});
  }
  return table.text(0, colors());
}

/// What was chosen where the file is silent, and why a system has no plan; equal lines once.
std::string notes(const std::vector<MixedLengthSummary>& systems) {
  std::vector<std::string> lines;
  const auto add = [&](const MixedLengthSummary& one, const std::string& text) {
    std::string line = fmt::format("{}, {}: {}\n", one.of_case, one.system, text);
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) {
      lines.push_back(std::move(line));
    }
  };
  for (const MixedLengthSummary& one : systems) {
    if (!one.reason.empty()) add(one, fmt::format("{}: {}", one.status, one.reason));
    for (const std::string& text : one.search) add(one, text);
    for (const std::string& text : one.strategies) add(one, text);
  }
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

/// What `--json` prints of a system.
struct SystemDocument {
  std::string run;
  MixedLengthSummary summary;
};

struct MixedLengthDocument {
  std::string study;
  std::string results;
  std::string runs_csv;
  std::string steps_csv;
  std::vector<std::string> figures;
  std::vector<std::string> problems;
  bool interrupted = false;
  std::vector<SystemDocument> systems;
};

void describe(config::Visitor& v, SystemDocument& system) {
  v.title("System");
  v.required("run", system.run, "content hash: name of its folder");
  experiments::describe(v, system.summary);
}

void describe(config::Visitor& v, MixedLengthDocument& document) {
  v.title("Mixed lengths");
  v.required("study", document.study, "");
  v.required("results", document.results, "");
  v.required("runs_csv", document.runs_csv, "");
  v.required("steps_csv", document.steps_csv, "a row for each step");
  v.required("figures", document.figures, "");
  v.required("problems", document.problems, "");
  v.required("interrupted", document.interrupted, "");
  v.required("systems", document.systems, "");
}

/// CASE/SYSTEM/STEP of --of.
struct StepPlace {
  Point point;
  int step = 0;
};

StepPlace place_of(const std::optional<std::string>& text, const std::vector<Point>& points,
                   config::Diagnostics& diagnostics) {
  StepPlace place;
  const std::string& all = text.value_or("");
  const std::size_t first = all.find('/');
  const std::size_t last = all.rfind('/');
  if (first == std::string::npos || first == last) {
    diagnostics.add(at_flag("--of"), fmt::format("'{}' is not CASE/SYSTEM/STEP", all),
                    fmt::format("for example --of '{}/{}/0'", points.front().on("case"),
                                points.front().on("system")));
    return place;
  }
  std::vector<Point> left = points;
  const auto keep = [&](const char* axis, const std::string& name) {
    std::vector<std::string> known;
    for (const Point& point : left) {
      const std::string value = point.on(axis);
      if (std::find(known.begin(), known.end(), value) == known.end()) known.push_back(value);
    }
    std::erase_if(left, [&](const Point& point) { return point.on(axis) != name; });
    if (!left.empty()) return true;
    diagnostics.add(at_flag("--of"), fmt::format("no {} '{}'", axis, name),
                    config::suggest(name, known, fmt::format("{}s", axis)));
    return false;
  };
  if (keep("case", all.substr(0, first)) &&
      keep("system", all.substr(first + 1, last - first - 1))) {
    place.point = left.front();
  }
  const std::int64_t step =
      experiments::whole_number(all.substr(last + 1), "of", 0, 0, diagnostics);
  if (step > experiments::kMostSteps) {
    diagnostics.add(at_flag("--of"),
                    fmt::format("step {}: at most {}", step, experiments::kMostSteps));
  } else {
    place.step = static_cast<int>(step);
  }
  return place;
}

/// Plans one step of one system and writes it.
StudyReport save_plan(const LoadedMixedLength& loaded, int number, const std::string& path,
                      const experiments::Call& call) {
  experiments::MixedLengthSession session(loaded);
  const experiments::MixedLengthRun& run = loaded.run;
  if (const auto& no = session.infeasible()) {
    call.note(
        fmt::format("{}, {}: no plan: {}: {}", run.name, run.system, no->constraint, no->witness));
    return {[] {}, nullptr, 1};
  }
  const std::vector<std::int64_t> lengths = experiments::sequences_of(loaded, number);
  models::PlannedStep step = session.plan(lengths);
  step.planner = run.planner.value;
  experiments::write_file(path, models::dump_step_plan(step));
  std::string text =
      fmt::format("{}, {}, step {}: {} in {}, {:.3f} s\n", run.name, run.system, number,
                  counted(lengths.size(), "sequence"), counted(step.phases.size(), "phase"),
                  session.run(lengths).time.value);
  for (const std::string& line : session.strategies()) text += line + "\n";
  return {[text = text + path + "\n"] { print(text); }, nullptr, 0};
}

StudyReport plan_of_step(const Study& study, const MixedLengthSettings& args,
                         const experiments::Call& call, config::Diagnostics found) {
  const models::Library library = experiments::open_library(found);
  const auto all =
      experiments::load_mixed_lengths(study, experiments::expand(study, found), library, found);
  found.raise();
  std::vector<Point> points;
  for (const auto& [point, loaded] : all) points.push_back(point);
  const StepPlace place = place_of(args.of, points, found);
  found.raise();
  experiments::probe_outputs({{"plan", args.plan}});
  const auto chosen = std::find_if(all.begin(), all.end(), [&](const auto& each) {
    return each.first.axes == place.point.axes;
  });
  return save_plan(*chosen->second, place.step, *args.plan, call);
}

StudyReport mixed_length(const MixedLengthSettings& args, const experiments::Call& call,
                         config::Diagnostics diagnostics) {
  const std::int64_t steps = experiments::whole_number(args.steps, "steps", 1, 0, diagnostics);
  if (steps > experiments::kMostSteps) {
    diagnostics.add(at_flag("--steps"), fmt::format("at most {}", experiments::kMostSteps));
  }
  if (args.of && !args.plan) {
    diagnostics.add(at_flag("--of"), "belongs to --plan FILE, which is not given");
  }
  const std::string path = experiments::study_file(args.file, diagnostics);
  experiments::check_outputs({{"plan", args.plan}}, {path}, diagnostics);
  Study study = experiments::load_study_of(path, "mixed_length", diagnostics);
  diagnostics.raise();
  if (steps > 0) {
    study.set("steps", config::Value::scalar(std::to_string(steps), at_flag("--steps")));
  }
  if (args.plan) return plan_of_step(study, args, call, std::move(diagnostics));
  return run_and_report(study, args.sweep, {}, call, std::move(diagnostics));
}

}  // namespace

StudyReport report_mixed_lengths(const Study& study, const StudyResult& result, bool dry_run) {
  MixedLengthDocument document{
      study.name,     result.results_folder, result.runs_csv,    result.table,
      result.figures, result.problems,       result.interrupted, {}};
  std::vector<MixedLengthSummary> systems;
  for (const experiments::Task& run : result.runs) {
    systems.push_back(experiments::mixed_length_summary(run, result.results_folder));
    document.systems.push_back({run.hash, systems.back()});
  }
  if (dry_run) {
    return report_of(
        fmt::format("dry run: {} of {} to do; results would go to {}\n", result.missing,
                    counted(result.total, "run"), result.results_folder),
        document);
  }
  const std::size_t steps = experiments::read_csv_rows(result.table).size();
  std::string text = section(study.title, summary(systems)) + notes(systems);
  text += fmt::format("{} steps in {}\n", steps, result.table);
  for (const std::string& drawn : result.figures) text += drawn + "\n";
  return report_of(text, document, steps > 0 ? 0 : 1);
}

void describe(config::Visitor& v, MixedLengthSettings& settings) {
  v.required("file", settings.file, "study of mixed lengths, or a folder that holds one",
             {.positional = true});
  describe(v, settings.sweep);
  v.optional("steps", settings.steps, "steps of each case; default: what the file says");
  v.optional("plan", settings.plan,
             "run nothing: write the plan of one step to this file, for orrery simulate");
  v.optional("of", settings.of, "CASE/SYSTEM/STEP: which step --plan writes");
}

extern const Command kMixedLength;
const Command kMixedLength = command<mixed_length, print_report<MixedLengthSettings>>(
    "mixed-length", "Simulate steps with sequences of mixed lengths, system by system",
    "mixed-length experiments/hetu/mixed_length --steps 2 --no-figure");

}  // namespace orrery::tools
