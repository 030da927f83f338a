/// orrery compare: a run that was executed against what the simulator says about its programs.
#include "experiments/execution/compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/base/text.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

using calibration::PredictedMeasured;
using experiments::ComparedPhase;
using experiments::CompareResult;
using experiments::CompareSettings;
using experiments::GenerationComparison;

std::string milliseconds(double seconds) { return grouped(1e3 * seconds, 2); }
std::string mib(double bytes) { return grouped(bytes / 0x1p20, 2); }

/// The row of checkpoints, which are apart from the iteration.
void add_checkpoints(const calibration::CheckpointComparison& checkpoints, Table& table) {
  if (checkpoints.parts == 0) {
    table.row({"checkpoint", "-", "-", "-", "none written"});
    return;
  }
  const PredictedMeasured held{checkpoints.predicted.value_or(0), checkpoints.measured};
  table.row({"checkpoint", checkpoints.predicted ? milliseconds(held.predicted) : std::string("-"),
             milliseconds(held.measured),
             checkpoints.predicted ? error_cell(held.error()) : std::string("-"), "apart"});
}

std::string checkpoints_text(const calibration::CheckpointComparison& checkpoints) {
  std::string text;
  if (checkpoints.parts > 0) {
    text = fmt::format(
        "checkpoint: mean time that it held a rank ({} after {}, {} MiB each, {} ms at most); {} "
        "ms between steps are in no iteration\n",
        counted(checkpoints.parts, "part"), counted(checkpoints.checkpoints, "step"),
        mib(checkpoints.bytes.value), milliseconds(checkpoints.longest),
        milliseconds(checkpoints.between_steps));
  }
  if (!checkpoints.problem.empty()) {
    text += fmt::format("checkpoint: {}\n", checkpoints.problem);
  }
  return text;
}

std::string times_table(const calibration::Comparison& comparison,
                        const calibration::CheckpointComparison& checkpoints) {
  Table table;
  table.column("").number("predicted ms").number("measured ms").number("error");
  table.number("of the iteration");
  const auto row = [&](const std::string& name, const PredictedMeasured& time, double part) {
    table.row({name, milliseconds(time.predicted), milliseconds(time.measured),
               error_cell(time.error()), error_cell(part)});
  };
  row("iteration", comparison.iteration, comparison.iteration.error());
  for (const calibration::ComponentRow& component : comparison.components) {
    row(component.name, component.seconds, component.of_iteration);
  }
  add_checkpoints(checkpoints, table);
  return table.text(0, colors());
}

std::string memory_table(const calibration::Comparison& comparison) {
  Table table;
  table.number("rank").number("device").number("predicted MiB").number("measured MiB");
  table.number("error");
  for (const calibration::MemoryRow& row : comparison.memory) {
    table.row({std::to_string(row.rank.value), std::to_string(row.device.value),
               mib(row.bytes.predicted), mib(row.bytes.measured), error_cell(row.bytes.error())});
  }
  return table.empty() ? "" : fmt::format("\n{}", section("Peak memory", table.text(0, colors())));
}

std::string ops_table(const calibration::Comparison& comparison) {
  Table table;
  table.number("rank").column("op").number("ops").number("predicted ms").number("measured ms");
  table.number("share of the error");
  for (const calibration::OpRow& row : comparison.worst) {
    table.row({std::to_string(row.rank.value), row.what, std::to_string(row.ops),
               milliseconds(row.seconds.predicted), milliseconds(row.seconds.measured),
               fmt::format("{:.1f} %", 100 * row.share)});
  }
  return table.empty()
             ? ""
             : fmt::format("\n{}", section("Ops that are furthest off", table.text(0, colors())));
}

std::string phases_table(const GenerationComparison& generation) {
  Table table;
  table.column("phase").number("predicted s").number("measured s").number("error");
  std::vector<ComparedPhase> rows = generation.phases;
  if (const auto total = total_of(rows)) rows.push_back(*total);
  for (const ComparedPhase& phase : rows) {
    table.row({phase.phase, phase.predicted ? seconds_cell(*phase.predicted) : std::string("-"),
               seconds_cell(phase.measured),
               phase.predicted
                   ? error_cell(PredictedMeasured{*phase.predicted, phase.measured}.error())
                   : std::string("-")});
  }
  if (table.empty()) return "";
  std::string text = table.text(0, colors());
  if (!generation.phases_problem.empty()) text += generation.phases_problem + "\n";
  return fmt::format("\n{}", section("Recovery", text));
}

std::string lines_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string prices_text(const std::vector<std::string>& prices) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kPricesShown, prices.size()); ++i) {
    text += prices[i] + "\n";
  }
  if (prices.size() > kPricesShown) {
    text += fmt::format("and {}\n", counted(prices.size() - kPricesShown, "line"));
  }
  return fmt::format("\n{}", section("Where predicted times come from", text));
}

std::string generation_text(const GenerationComparison& generation) {
  const std::string name = fmt::format("Generation {}", generation.generation);
  if (!generation.comparison) {
    return section(name, lines_of(generation.notes) + generation.problem + "\n") +
           phases_table(generation);
  }
  const calibration::Comparison& comparison = *generation.comparison;
  std::string body = times_table(comparison, generation.checkpoints);
  body +=
      fmt::format("{} counted, {} to {} ms long; transfers {} ({:.1f} % mean |error|); ops {}\n",
                  counted(comparison.steps, "step"), milliseconds(comparison.shortest_step),
                  milliseconds(comparison.longest_step), error_cell(comparison.transfers.error()),
                  100 * comparison.transfer_error, error_cell(comparison.op_bias));
  body += checkpoints_text(generation.checkpoints);
  if (generation.compute_ops > 0) {
    body += fmt::format(
        "disturbed: {} of {} compute ops ({:.1f} %) took longer than their device allows\n",
        generation.disturbed_ops, generation.compute_ops,
        100.0 * static_cast<double>(generation.disturbed_ops) /
            static_cast<double>(generation.compute_ops));
  }
  return section(name, lines_of(generation.notes) + body) + memory_table(comparison) +
         ops_table(comparison) + phases_table(generation) + prices_text(generation.prices);
}

void print_comparison(const CompareResult& result, const CompareSettings&) {
  std::string text = lines_of(result.notes);
  for (const GenerationComparison& generation : result.generations) {
    if (!text.empty()) text += '\n';
    text += generation_text(generation);
  }
  if (!result.files.empty()) text += '\n' + lines_of(result.files);
  print(text);
}

}  // namespace

extern const Command kCompare;
const Command kCompare = command<experiments::compare, print_comparison>(
    "compare", "Compare an executed run with its simulation, op by op",
    "compare results/first --profile results/calibrated/profile.yaml",
    "Predicted: one simulated iteration of the program that ran. Measured: mean of the middle half "
    "of its steps.");

}  // namespace orrery::tools
