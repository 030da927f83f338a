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
  const experiments::StageLoad* stage = nullptr;
  double mean_busy = 0;  ///< Over all stages.
};

Bottleneck bottleneck_of(const experiments::RunReport& report) {
  Bottleneck result;
  for (const experiments::StageLoad& stage : report.stages) {
    if (result.stage == nullptr || stage.busy() > result.stage->busy()) {
      result.stage = &stage;
    }
    result.mean_busy += stage.busy().value / static_cast<double>(report.stages.size());
  }
  return result;
}

std::string place_of(const experiments::StageLoad& stage, const experiments::RunReport& report,
                     const experiments::LoadedRun& run) {
  const ir::Stage& planned = report.plan->pipelines[stage.pipeline].stages[stage.stage];
  return fmt::format("stage {} of pipeline {} ({}, TP {}, blocks {})", stage.stage, stage.pipeline,
                     composition(ir::devices_of(planned), run.cluster), tensor_parallel(planned),
                     block_ranges(planned));
}

std::string bottleneck_text(const experiments::RunReport& report,
                            const experiments::LoadedRun& run) {
  const Bottleneck bottleneck = bottleneck_of(report);
  if (bottleneck.stage == nullptr) {
    return "The closed form that judges here does not say how busy each stage is.\n";
  }
  const experiments::StageLoad& stage = *bottleneck.stage;
  const double whole = report.evaluation->iteration_time.value;
  const std::string collectives = stage.tensor_parallel.value > 0
                                      ? fmt::format(", {} s of that in tensor-parallel collectives",
                                                    seconds_cell(stage.tensor_parallel.value))
                                      : "";
  std::string text = fmt::format(
      "Bottleneck: {}. Its busiest GPU works {} s of {} s ({}){}, and waits {} s for transfers; "
      "the mean over the stages is {}.\n",
      place_of(stage, report, run), seconds_cell(stage.busy().value), seconds_cell(whole),
      percent(stage.busy().value / whole), collectives, seconds_cell(stage.transfers.value),
      percent(bottleneck.mean_busy / whole));
  if (!report.busiest_links.empty()) {
    text += fmt::format("Busiest link: {}.\n", report.busiest_links.front());
  }
  return text;
}

std::string runners_up_text(const planners::SearchReport& search, double evaluated) {
  if (search.runners_up.empty()) return "";
  Table table;
  table.number("estimate s").number("judged s").column("against the chosen");
  table.column("next best plans of this planner");
  for (const planners::RunnerUp& lost : search.runners_up) {
    const bool judged = lost.evaluated.has_value();
    const std::string difference =
        judged ? against(lost.evaluated->value, evaluated)
               : against(lost.estimate.value, search.estimate.value_or(0_s).value) +
                     " by the estimate";
    table.row({seconds_cell(lost.estimate.value),
               judged ? seconds_cell(lost.evaluated->value) : "-", difference, lost.what});
  }
  return fmt::format("\n{}", table.text(0, colors()));
}

std::string constraints_text(const planners::SearchReport& search) {
  if (search.constraints.empty()) return "\nNo plan that this planner built was forbidden.\n";
  std::string text = "\n";
  for (const planners::ConstraintCost& cost : search.constraints) {
    text += fmt::format("Constraint: {} forbade {}.", cost.constraint,
                        grouped(static_cast<double>(cost.rejected), 0));
    if (cost.best_without && search.estimate) {
      text += cost.best_without->value < search.estimate->value
                  ? fmt::format(" Without it the planner would expect {} s instead of {} s ({}).",
                                seconds_cell(cost.best_without->value),
                                seconds_cell(search.estimate->value),
                                against(cost.best_without->value, search.estimate->value))
                  : std::string(" None of them would be faster.");
    }
    text += "\n";
    if (!cost.witness.empty()) text += fmt::format("  The best of them: {}\n", cost.witness);
  }
  return text;
}

std::string next_steps_text(const planners::SearchReport& search, double evaluated) {
  if (search.next_steps.empty()) return "";
  Table table;
  table.column("a change of").number("estimate s").column("against the chosen");
  table.column("the cheapest that was tried");
  for (const planners::NextStep& step : search.next_steps) {
    table.row({step.kind, seconds_cell(step.estimate.value),
               against(step.estimate.value, evaluated) + " by the estimate", step.what});
  }
  return fmt::format("\nWhat the next step would cost:\n{}", table.text(0, colors()));
}

std::string frontier_text(const planners::SearchReport& search) {
  if (search.frontier.empty()) return "";
  Table table;
  const bool priced = search.frontier.front().dollars_per_million_tokens.has_value();
  const bool powered = search.frontier.front().joules_per_token.has_value();
  table.number("judged s");
  if (priced) table.number("$/M tokens");
  if (powered) table.number("kWh/M tokens");
  table.number("GPUs");
  table.column(fmt::format("plans that no other beats in {}", priced && powered ? "all" : "both"));
  for (const planners::FrontierPlan& plan : search.frontier) {
    std::vector<std::string> row = {seconds_cell(plan.evaluated.value)};
    if (priced) row.push_back(fmt::format("{:.3f}", plan.dollars_per_million_tokens->value));
    if (powered)
      row.push_back(fmt::format("{:.4g}", kwh_per_million_tokens(*plan.joules_per_token)));
    row.insert(row.end(), {fmt::format("{}", plan.devices), plan.what});
    table.row(row);
  }
  return fmt::format("\n{}", table.text(0, colors()));
}

/// "bubble 3.1 s instead of 1.2 s": the part of the time that differs most.
std::string main_difference(const models::Evaluation& other, const models::Evaluation& best) {
  const std::pair<const char*, Seconds models::Breakdown::*> parts[] = {
      {"compute", &models::Breakdown::compute},
      {"tensor parallelism", &models::Breakdown::tensor_parallel},
      {"gathers of parameters (ZeRO-3)", &models::Breakdown::zero},
      {"pipeline transfers", &models::Breakdown::pipeline},
      {"data parallelism", &models::Breakdown::data_parallel},
      {"optimizer", &models::Breakdown::optimizer},
      {"bubble", &models::Breakdown::bubble}};
  const auto* largest = &parts[0];
  const auto difference = [&](const auto& part) {
    return (other.breakdown.*part.second - best.breakdown.*part.second).value;
  };
  for (const auto& part : parts) {
    if (std::abs(difference(part)) > std::abs(difference(*largest))) largest = &part;
  }
  if (difference(*largest) == 0) return "";
  return fmt::format("{} {} s instead of {} s", largest->first,
                     seconds_cell((other.breakdown.*largest->second).value),
                     seconds_cell((best.breakdown.*largest->second).value));
}

std::string others_text(const experiments::RunReport& best,
                        const std::vector<experiments::RunReport>& reports) {
  Table table;
  table.column("other planners").number("judged s").column("against the best");
  table.column("largest difference, mean over GPUs");
  bool any = false;
  for (const experiments::RunReport& report : reports) {
    if (&report == &best || !report.evaluation) continue;
    any = true;
    table.row(
        {report.name, seconds_cell(report.evaluation->iteration_time.value),
         against(report.evaluation->iteration_time.value, best.evaluation->iteration_time.value),
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

std::string explanation(const experiments::RunReport& best,
                        const std::vector<experiments::RunReport>& reports,
                        const experiments::LoadedRun& run) {
  std::string text;
  if (best.search && !best.search->chosen.empty()) {
    text += fmt::format("{} chose {}.\n", best.name, best.search->chosen);
  }
  text += bottleneck_text(best, run);
  if (best.search) {
    text += runners_up_text(*best.search, best.evaluation->iteration_time.value);
    text += constraints_text(*best.search);
    text += next_steps_text(*best.search, best.evaluation->iteration_time.value);
    text += frontier_text(*best.search);
  }
  return section("Why this plan", text + others_text(best, reports));
}

}  // namespace orrery::tools
