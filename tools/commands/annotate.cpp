/// orrery annotate: a plan as an annotated graph, what its communication operators resolve to, and
/// the pipelines that follow from them.
#include "experiments/study/annotate.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/sharding/communicate.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

using experiments::AnnotatedStep;
using experiments::AnnotateResult;
using experiments::PlacedCommunication;
using experiments::PlacedTensor;

constexpr std::size_t kGroupsShown = 3;
constexpr std::size_t kGroupCharacters = 24;
constexpr std::size_t kPipelinesShown = 16;

std::string groups_cell(const AnnotatedStep& step) {
  const std::size_t count = step.groups.size();
  std::vector<std::string> shown(
      step.groups.begin(),
      step.groups.begin() + static_cast<std::ptrdiff_t>(std::min(count, kGroupsShown)));
  for (std::string& group : shown) {
    if (group.size() > kGroupCharacters) {
      group = group.substr(0, group.rfind(',', kGroupCharacters)) + ",...";
    }
  }
  const char* more = count > kGroupsShown ? "; ..." : "";
  return fmt::format("{}: {}{}", count, fmt::join(shown, "; "), more);
}

/// Names that share the other cells of their row.
using Rows = std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>>;

void add_row(Rows& rows, std::vector<std::string> cells, std::string name) {
  const auto same =
      std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.first == cells; });
  auto& names = same == rows.end()
                    ? rows.emplace_back(std::move(cells), std::vector<std::string>{}).second
                    : same->second;
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
}

/// Operators with the same communication share a row; what needs none is left out.
std::string communication_table(const AnnotateResult& result, const std::string& frequency) {
  Rows rows;
  for (const PlacedCommunication& one : result.communications) {
    if (one.frequency != frequency) continue;
    for (const AnnotatedStep& step : one.steps) {
      if (step.kind == models::to_string(models::CommunicationKind::identity)) continue;
      add_row(rows, {one.layers, std::to_string(step.phase + 1), step.kind, groups_cell(step)},
              one.operation);
    }
  }
  if (rows.empty()) return "";
  Table table;
  table.column("layers").number("phase").column("kind").column("groups or sends");
  table.column("operators");
  for (const auto& [cells, names] : rows) {
    table.row({cells[0], cells[1], cells[2], cells[3], fmt::format("{}", fmt::join(names, ", "))});
  }
  return table.text(0, colors());
}

/// Inputs and parameters; tensors that lie alike share a row.
std::string leaf_table(const AnnotateResult& result) {
  constexpr std::size_t kMost = 72;
  constexpr const char* kSummands = ".summands";  // what gradients are before they are added up
  Rows rows;
  for (const PlacedTensor& tensor : result.tensors) {
    if (!tensor.leaf || tensor.tensor.find(kSummands) != std::string::npos) continue;
    std::string annotation = tensor.annotation;
    if (annotation.size() > kMost) annotation.replace(kMost, annotation.npos, " ...");
    add_row(rows, {tensor.layers, std::move(annotation)}, tensor.tensor);
  }
  Table table;
  table.column("layers").column("annotation").column("tensors");
  for (const auto& [cells, names] : rows) {
    table.row({cells[0], cells[1], fmt::format("{}", fmt::join(names, ", "))});
  }
  return table.text(0, colors());
}

std::string pipelines_text(const AnnotateResult& result) {
  if (!result.no_pipelines.empty()) return "none: " + result.no_pipelines + "\n";
  std::string text;
  const std::size_t count = result.pipelines.size();
  for (std::size_t i = 0; i < std::min(count, kPipelinesShown); ++i) {
    text += fmt::format("{}: {}\n", i, fmt::join(result.pipelines[i].stages, " -> "));
  }
  if (count > kPipelinesShown) {
    text +=
        fmt::format("and {} (--json shows all)\n", counted(count - kPipelinesShown, "pipeline"));
  }
  return text;
}

std::string annotation_text(const AnnotateResult& result) {
  std::string text = fmt::format(
      "{}{}: D duplicate, P partial, S0 split along dimension 0, | between subgroups; HDim -1 "
      "duplicate, -2 partial\n\n{}\n",
      job_line(result.inputs), result.plan, section("Inputs and parameters", leaf_table(result)));
  const std::pair<const char*, const char*> kinds[] = {
      {"micro-batch", "Communication of the forward pass, for each micro-batch"},
      {"pass", "Before each pass: gathers of sharded parameters"},
      {"step", "Once per step: gradients and parameters"}};
  for (const auto& [frequency, title] : kinds) {
    const std::string table = communication_table(result, frequency);
    if (!table.empty()) text += section(title, table) + "\n";
  }
  return text + section("Pipelines that the communication makes", pipelines_text(result));
}

void print_annotation(const AnnotateResult& result, const experiments::AnnotateSettings&) {
  print(annotation_text(result));
}

}  // namespace

extern const Command kAnnotate;
const Command kAnnotate = command<experiments::annotate, print_annotation>(
    "annotate", "Show a plan's sharding annotations and what its communication resolves to",
    "annotate experiments/hetu/plans/c2.yaml --cluster hetu_32h20 --model hetu_32b "
    "--sequence-length 4096",
    "Exit code 1: the plan has no annotated graph; the reason is printed.");

}  // namespace orrery::tools
