/// orrery mixed-length: systems that train on sequences of mixed lengths, step by step.
#include "experiments/study/mixed_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <vector>

#include "experiments/study/mixed_length_study.h"
#include "models/config/document.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/inputs.h"
#include "tools/commands/run_folder.h"
#include "tools/commands/sweep_settings.h"

namespace orrery::tools {
namespace {

namespace fs = std::filesystem;
using experiments::LoadedMixedLength;
using experiments::MixedLengthResult;

std::string summary(const MixedLengthResult& result) {
  Table table;
  table.column("case").column("system").number("mean s").number("10 %").number("90 %");
  table.number("switching s").number("switches").number("computed tokens");
  for (const experiments::MixedLengthSummary& one : result.systems) {
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
std::string notes(const MixedLengthResult& result) {
  std::vector<std::string> lines;
  const auto add = [&](const experiments::MixedLengthSummary& one, const std::string& text) {
    std::string line = fmt::format("{}, {}: {}\n", one.of_case, one.system, text);
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) {
      lines.push_back(std::move(line));
    }
  };
  for (const experiments::MixedLengthSummary& one : result.systems) {
    if (!one.reason.empty()) add(one, fmt::format("{}: {}", one.status, one.reason));
    for (const std::string& text : one.search) add(one, text);
    for (const std::string& text : one.strategies) add(one, text);
  }
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

int closing_status(const MixedLengthResult& result) {
  for (const std::string& problem : result.problems) fmt::print(stderr, "orrery: {}\n", problem);
  if (result.interrupted) {
    fmt::print(stderr, "orrery: interrupted; {} kept in {}, the same command goes on from there\n",
               counted(static_cast<std::size_t>(result.present + result.done), "result"),
               result.results_folder);
    return kInterrupted;
  }
  return !result.problems.empty() || result.steps == 0 ? 1 : 0;
}

/// CASE/SYSTEM/STEP of --of.
struct StepPlace {
  std::size_t of_case = 0;
  std::size_t system = 0;
  int step = 0;
};

template <class T>
std::size_t place_of(const std::string& name, const std::vector<T>& all, const char* kind,
                     config::Diagnostics& diagnostics) {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].name == name) return i;
    known.push_back(all[i].name);
  }
  diagnostics.add(at_flag("--of"), fmt::format("no {} '{}'", kind, name),
                  config::suggest(name, known, fmt::format("{}s", kind)));
  return 0;
}

StepPlace place_of(const Text& text, const LoadedMixedLength& loaded,
                   config::Diagnostics& diagnostics) {
  StepPlace place;
  const std::string& all = text.value_or("");
  const std::size_t first = all.find('/');
  const std::size_t last = all.rfind('/');
  if (first == std::string::npos || first == last) {
    diagnostics.add(at_flag("--of"), fmt::format("'{}' is not CASE/SYSTEM/STEP", all),
                    fmt::format("for example --of '{}/{}/0'", loaded.file.cases.front().name,
                                loaded.file.cases.front().systems.front().name));
    return place;
  }
  const std::size_t before = diagnostics.problems().size();
  place.of_case = place_of(all.substr(0, first), loaded.file.cases, "case", diagnostics);
  if (diagnostics.problems().size() == before) {
    place.system = place_of(all.substr(first + 1, last - first - 1),
                            loaded.file.cases[place.of_case].systems, "system", diagnostics);
  }
  const std::int64_t step = whole_number(all.substr(last + 1), "--of", 0, 0, diagnostics);
  if (step > experiments::kMostSteps) {
    diagnostics.add(at_flag("--of"),
                    fmt::format("step {}: at most {}", step, experiments::kMostSteps));
  } else {
    place.step = static_cast<int>(step);
  }
  return place;
}

/// Plans one step of one system and writes it.
int save_plan(const LoadedMixedLength& loaded, const StepPlace& place, const std::string& path) {
  experiments::MixedLengthSession session(loaded, place.of_case, place.system);
  const experiments::MixedLengthCase& one = loaded.file.cases[place.of_case];
  const experiments::MixedLengthSystem& system = one.systems[place.system];
  if (const auto& no = session.infeasible()) {
    fmt::print(stderr, "orrery: {}, {}: no plan: {}: {}\n", one.name, system.name, no->constraint,
               no->witness);
    return 1;
  }
  const std::vector<std::int64_t> lengths =
      experiments::sequences_of(loaded, place.of_case, place.step);
  models::PlannedStep step = session.plan(lengths);
  step.planner = system.planner.value;
  write_file(path, models::dump_step_plan(step));
  print(fmt::format("{}, {}, step {}: {} in {}, {:.3f} s\n", one.name, system.name, place.step,
                    counted(lengths.size(), "sequence"), counted(step.phases.size(), "phase"),
                    session.run(lengths).time.value));
  for (const std::string& line : session.strategies()) print(line + "\n");
  print(path + "\n");
  return 0;
}

}  // namespace

void describe(config::Visitor& v, MixedLengthSettings& settings) {
  v.required("file", settings.file, "mixed_length.yaml, or a folder that holds one",
             {.positional = true});
  describe(v, settings.sweep);
  v.optional("steps", settings.steps, "steps of each case; default: what the file says");
  v.optional("plan", settings.plan,
             "run nothing: write the plan of one step to this file, for orrery simulate");
  v.optional("of", settings.of, "CASE/SYSTEM/STEP: which step --plan writes");
}

int run_mixed_length_study(const MixedLengthSettings& args) {
  config::Diagnostics diagnostics;
  const experiments::RunnerOptions options = args.sweep.options();
  const std::int64_t steps = whole_number(args.steps, "--steps", 1, 0, diagnostics);
  if (steps > experiments::kMostSteps) {
    diagnostics.add(at_flag("--steps"), fmt::format("at most {}", experiments::kMostSteps));
  }
  if (args.of && !args.plan) {
    diagnostics.add(at_flag("--of"), "belongs to --plan FILE, which is not given");
  }
  std::error_code error;
  const std::string path = fs::is_directory(args.file, error)
                               ? (fs::path(args.file) / kMixedLengthFile).string()
                               : args.file;
  check_outputs({{"--plan", args.plan}}, {path}, diagnostics);
  const auto file = config::load_file<experiments::MixedLengthFile>(path, diagnostics);
  const models::Library library = open_library(diagnostics);
  diagnostics.raise();
  const std::string folder = fs::path(path).parent_path().string();
  const LoadedMixedLength loaded =
      experiments::load_mixed_length(file, folder, static_cast<int>(steps), library, diagnostics);
  StepPlace place;
  if (args.plan) place = place_of(args.of, loaded, diagnostics);
  diagnostics.raise();
  if (args.plan) {
    probe_outputs({{"--plan", args.plan}});
    return save_plan(loaded, place, *args.plan);
  }
  const MixedLengthResult result = [&] {
    SweepProgress shown(options);
    return experiments::run_mixed_length(loaded, folder, options, shown.listener());
  }();
  if (options.dry_run) {
    print(fmt::format("dry run: {} of {} to do; results would go to {}\n", result.missing,
                      counted(static_cast<std::size_t>(result.total), "run"),
                      result.results_folder));
    return 0;
  }
  print(section(file.title, summary(result)));
  print(notes(result));
  print(fmt::format("{} steps in {}\n", result.steps, result.steps_csv));
  for (const std::string& drawn : result.figures) print(drawn + "\n");
  return closing_status(result);
}

extern const Command kMixedLength;
const Command kMixedLength = printing_command<MixedLengthSettings, run_mixed_length_study>(
    "mixed-length", "Simulate steps with sequences of mixed lengths, system by system",
    "mixed-length experiments/hetu/mixed_length --steps 2 --no-figure");

}  // namespace orrery::tools
