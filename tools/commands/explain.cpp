#include "tools/commands/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/cli/output.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

struct Bottleneck {
  const StageRecord* stage = nullptr;
  double mean_busy = 0;  ///< Over all stages.
};

Bottleneck bottleneck_of(const Report& report) {
  Bottleneck result;
  for (const StageRecord& stage : report.stages) {
    if (result.stage == nullptr || stage.busy_seconds() > result.stage->busy_seconds()) {
      result.stage = &stage;
    }
    result.mean_busy += stage.busy_seconds() / static_cast<double>(report.stages.size());
  }
  return result;
}

std::string place_of(const StageRecord& stage, const Report& report,
                     const experiments::LoadedRun& run) {
  const ir::Stage& planned = report.plan->pipelines[static_cast<std::size_t>(stage.pipeline)]
                                 .stages[static_cast<std::size_t>(stage.stage)];
  return fmt::format("stage {} of pipeline {} ({}, TP {}, blocks {})", stage.stage, stage.pipeline,
                     composition(ir::devices_of(planned), run.cluster), tensor_parallel(planned),
                     block_ranges(planned));
}

std::string bottleneck_text(const Report& report, const experiments::LoadedRun& run) {
  const Bottleneck bottleneck = bottleneck_of(report);
  if (bottleneck.stage == nullptr) {
    return "The closed form that judges here does not say how busy each stage is.\n";
  }
  const StageRecord& stage = *bottleneck.stage;
  const double whole = report.evaluation->iteration_seconds;
  const std::string collectives = stage.tensor_parallel_seconds > 0
                                      ? fmt::format(", {} s of that in tensor-parallel collectives",
                                                    seconds_cell(stage.tensor_parallel_seconds))
                                      : "";
  std::string text = fmt::format(
      "Bottleneck: {}. Its busiest GPU works {} s of {} s ({}){}, and waits {} s for transfers; "
      "the mean over the stages is {}.\n",
      place_of(stage, report, run), seconds_cell(stage.busy_seconds()), seconds_cell(whole),
      percent(stage.busy_seconds() / whole), collectives, seconds_cell(stage.transfer_seconds),
      percent(bottleneck.mean_busy / whole));
  if (!report.busiest_links.empty()) {
    text += fmt::format("Busiest link: {}.\n", report.busiest_links.front());
  }
  return text;
}

std::string runners_up_text(const SearchRecord& search, double evaluated) {
  if (search.runners_up.empty()) return "";
  Table table;
  table.number("estimate s").number("judged s").column("against the chosen");
  table.column("next best plans of this planner");
  for (const RunnerUpRecord& lost : search.runners_up) {
    const bool judged = lost.evaluated_seconds.has_value();
    const std::string difference =
        judged ? against(*lost.evaluated_seconds, evaluated)
               : against(lost.estimate_seconds, search.estimate_seconds.value_or(0)) +
                     " by the estimate";
    table.row({seconds_cell(lost.estimate_seconds),
               judged ? seconds_cell(*lost.evaluated_seconds) : "-", difference, lost.what});
  }
  return fmt::format("\n{}", table.text(0, colors()));
}

std::string constraints_text(const SearchRecord& search) {
  if (search.constraints.empty()) return "\nNo plan that this planner built was forbidden.\n";
  std::string text = "\n";
  for (const ConstraintRecord& cost : search.constraints) {
    text += fmt::format("Constraint: {} forbade {}.", cost.constraint,
                        grouped(static_cast<double>(cost.rejected), 0));
    if (cost.best_without_seconds && search.estimate_seconds) {
      text += *cost.best_without_seconds < *search.estimate_seconds
                  ? fmt::format(" Without it the planner would expect {} s instead of {} s ({}).",
                                seconds_cell(*cost.best_without_seconds),
                                seconds_cell(*search.estimate_seconds),
                                against(*cost.best_without_seconds, *search.estimate_seconds))
                  : std::string(" None of them would be faster.");
    }
    text += "\n";
    if (!cost.witness.empty()) text += fmt::format("  The best of them: {}\n", cost.witness);
  }
  return text;
}

/// "bubble 3.1 s instead of 1.2 s": the part of the time that differs most.
std::string main_difference(const EvaluationRecord& other, const EvaluationRecord& best) {
  const std::pair<const char*, double EvaluationRecord::*> parts[] = {
      {"compute", &EvaluationRecord::compute_seconds},
      {"tensor parallelism", &EvaluationRecord::tensor_parallel_seconds},
      {"pipeline transfers", &EvaluationRecord::pipeline_communication_seconds},
      {"data parallelism", &EvaluationRecord::data_parallel_seconds},
      {"optimizer", &EvaluationRecord::optimizer_seconds},
      {"bubble", &EvaluationRecord::bubble_seconds}};
  const auto* largest = &parts[0];
  const auto difference = [&](const auto& part) { return other.*part.second - best.*part.second; };
  for (const auto& part : parts) {
    if (std::abs(difference(part)) > std::abs(difference(*largest))) largest = &part;
  }
  if (difference(*largest) == 0) return "";
  return fmt::format("{} {} s instead of {} s", largest->first,
                     seconds_cell(other.*largest->second), seconds_cell(best.*largest->second));
}

std::string others_text(const Report& best, const std::vector<Report>& reports) {
  Table table;
  table.column("other planners").number("judged s").column("against the best");
  table.column("largest difference, mean over GPUs");
  bool any = false;
  for (const Report& report : reports) {
    if (&report == &best || !report.evaluation) continue;
    any = true;
    table.row({report.name, seconds_cell(report.evaluation->iteration_seconds),
               against(report.evaluation->iteration_seconds, best.evaluation->iteration_seconds),
               main_difference(*report.evaluation, *best.evaluation)});
  }
  return any ? fmt::format("\n{}", table.text(0, colors())) : "";
}

}  // namespace

std::string against(double seconds, double reference) {
  const double change = reference > 0 ? seconds / reference - 1 : 0;
  if (std::abs(change) < 5e-4) return "equal";
  return fmt::format("{:.1f} % {}", 100 * std::abs(change), change > 0 ? "slower" : "faster");
}

std::string explanation(const Report& best, const std::vector<Report>& reports,
                        const experiments::LoadedRun& run) {
  std::string text;
  if (best.search && !best.search->chosen.empty()) {
    text += fmt::format("{} chose {}.\n", best.name, best.search->chosen);
  }
  text += bottleneck_text(best, run);
  if (best.search) {
    text += runners_up_text(*best.search, best.evaluation->iteration_seconds);
    text += constraints_text(*best.search);
  }
  return section("Why this plan", text + others_text(best, reports));
}

}  // namespace orrery::tools
