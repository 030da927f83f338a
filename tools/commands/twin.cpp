/// orrery twin: plans are executed, the machine is calibrated, the simulator predicts what ran, and
/// both are compared: in one go, as a manifest says.
#include "experiments/execution/twin.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "models/base/text.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/tables.h"
#include "tools/commands/twin.h"

namespace orrery::tools {
namespace {

using calibration::Comparison;
using calibration::PredictedMeasured;
using experiments::ComparedPhase;
using experiments::error_lines;
using experiments::TwinErrorLine;
using experiments::TwinResult;
using experiments::TwinRun;
using experiments::TwinSettings;
using experiments::TwinSummary;
using experiments::with_total;

/// Share of disturbed ops above which a run's errors say more about the machine than about the
/// model.
constexpr double kDisturbedLimit = 0.05;

std::string state_text(const TwinRun& run) {
  if (!run.skipped.empty()) return fmt::format("skipped: {}", run.skipped);
  if (run.finished) return "there already";
  std::error_code error;
  return std::filesystem::exists(run.plan, error) ? "to run" : "to plan and run";
}

std::string dry_run_text(const TwinSummary& summary) {
  Table table;
  table.column("run").column("set").column("plan").column("loses").column("");
  for (const TwinResult& result : summary.results) {
    const TwinRun& run = result.run;
    table.row({run.name,
               run.fit            ? "fit"
               : run.seen.empty() ? "predict"
                                  : "seen",
               run.source == "file" ? run.plan : run.source,
               run.policy.empty() ? std::string()
                                  : fmt::format("{} ({})", to_scalar(run.kill), run.policy),
               state_text(run)});
  }
  return table.text(0, colors());
}

std::string runs_table(const TwinSummary& summary) {
  Table table;
  table.column("run").column("set").column("schedule").number("predicted ms");
  table.number("measured ms").number("error").number("benchmarks only").number("transfers");
  table.number("disturbed").column("");
  for (const TwinResult& result : summary.results) {
    const Comparison* comparison = result.predicted();
    if (comparison == nullptr) continue;
    const Comparison* raw = result.by_benchmarks();
    table.row({result.run.name, result.set(), result.schedule,
               grouped(1e3 * comparison->iteration.predicted, 1),
               grouped(1e3 * comparison->iteration.measured, 1),
               error_cell(comparison->iteration.error()),
               raw == nullptr ? std::string("-") : error_cell(raw->iteration.error()),
               comparison->transfers.measured > 0 ? error_cell(comparison->transfers.error())
                                                  : std::string("-"),
               fmt::format("{:.1f} %", 100 * result.disturbed_share()),
               result.same_as.empty() ? std::string()
                                      : fmt::format("the program of {}", result.same_as)});
  }
  return table.text(0, colors());
}

/// Which runs are in no mean of predicted runs, and why.
std::string counted_text(const TwinSummary& summary) {
  std::string text;
  for (const TwinResult& result : summary.results) {
    if (!result.run.seen.empty() && result.predicted() != nullptr) {
      text += fmt::format("{} is no unseen run: {}\n", result.run.name, result.run.seen);
    }
  }
  const bool twice = std::any_of(summary.results.begin(), summary.results.end(),
                                 [](const TwinResult& result) { return !result.same_as.empty(); });
  if (twice) text += "A program that ran twice counts once in the errors below.\n";
  return text;
}

/// Says so where the machine was not quiet; "" where it was.
std::string disturbed_text(const TwinSummary& summary) {
  std::size_t compared = 0, over = 0;
  const TwinResult* worst = nullptr;
  for (const TwinResult& result : summary.results) {
    if (result.predicted() == nullptr) continue;
    ++compared;
    if (result.disturbed_share() > kDisturbedLimit) ++over;
    if (worst == nullptr || result.disturbed_share() > worst->disturbed_share()) worst = &result;
  }
  if (over == 0) return "";
  return fmt::format(
      "More than {:.0f} % of the ops were disturbed in {} of {} (at most {:.1f} %: {}): they "
      "waited for a core that something else had, and the errors say more about the machine than "
      "about the model.\n",
      100 * kDisturbedLimit, over, counted(compared, "run"), 100 * worst->disturbed_share(),
      worst->run.name);
}

std::string phases_table(const TwinSummary& summary) {
  Table table;
  table.column("run").column("set").column("policy").column("phase").number("predicted s");
  table.number("measured s").number("error");
  for (const TwinResult& result : summary.results) {
    for (const ComparedPhase& phase : with_total(result.phases)) {
      table.row({result.run.name, result.set(), result.run.policy, phase.phase,
                 phase.predicted ? seconds_cell(*phase.predicted) : std::string("-"),
                 seconds_cell(phase.measured),
                 phase.predicted
                     ? error_cell(PredictedMeasured{*phase.predicted, phase.measured}.error())
                     : std::string("-")});
    }
  }
  return table.empty() ? "" : fmt::format("\n{}", section("Recoveries", table.text(0, colors())));
}

std::string parameters_text(const TwinSummary& summary) {
  const calibration::PassFactors& f = summary.parameters.factors;
  std::string text = fmt::format(
      "forward x {:.4f} ({} ops), backward x {:.4f} ({} ops), optimizer x {:.4f} ({} ops)\n",
      f.forward, f.forward_ops, f.backward, f.backward_ops, f.optimizer, f.optimizer_ops);
  for (const ir::PhaseTime& phase : summary.parameters.phases) {
    text += fmt::format("{} {} s ({})\n", phase.phase, seconds_cell(phase.time.value),
                        counted(phase.provenance.samples, "run"));
  }
  return text;
}

std::string problems_text(const TwinSummary& summary) {
  std::string text;
  for (const TwinResult& result : summary.results) {
    if (!result.problem.empty()) {
      text += fmt::format("{}: {}\n", result.run.name, result.problem);
    }
  }
  return text.empty() ? "" : fmt::format("\n{}", section("Without a comparison", text));
}

void print_twin(const TwinSummary& summary, const TwinSettings& settings) {
  if (settings.dry_run) return print(dry_run_text(summary));
  std::string text = "\n" + twin_text(summary);
  for (const std::string& file : summary.files) text += file + "\n";
  print(text + (std::filesystem::path(summary.folder) / "twin.csv").string() + "\n");
}

}  // namespace

std::string twin_text(const TwinSummary& summary) {
  Table errors;
  errors.column("set").column("metric").number("runs").number("mean").number("median");
  errors.number("max").number("bias").number("target").number("disturbed").column("worst");
  for (const TwinErrorLine& line : error_lines(summary)) {
    const calibration::ErrorSummary& e = line.errors;
    const auto percent = [](double value) { return fmt::format("{:.1f} %", 100 * value); };
    errors.row({e.set, e.metric, std::to_string(e.rows), percent(e.mean), percent(e.median),
                percent(e.max), error_cell(e.bias),
                e.target ? percent(*e.target) : std::string("-"), percent(line.disturbed),
                e.worst});
  }
  std::string text =
      section(fmt::format("Runs ({})", summary.loopback ? "over loopback: the network is not the "
                                                          "cluster's"
                                                        : "on the emulated network"),
              runs_table(summary) + counted_text(summary)) +
      fmt::format("\n{}", section("Fitted on the runs of set 'fit'", parameters_text(summary))) +
      phases_table(summary) + problems_text(summary);
  if (!errors.empty()) {
    text +=
        fmt::format("\n{}", section("Errors", errors.text(0, colors()) + disturbed_text(summary)));
  }
  return text;
}

extern const Command kTwin;
const Command kTwin = command<experiments::twin, print_twin>(
    "twin", "Plan, execute, calibrate, predict and compare in one go",
    "twin experiments/twin/netlab/manifest.yaml",
    "Runs that are finished in the results folder are kept: a second "
    "start goes on. Exit code 130: interrupted.");

}  // namespace orrery::tools
