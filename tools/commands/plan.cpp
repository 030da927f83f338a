/// orrery plan: makes plans, simulates them, ranks them.
#include "experiments/study/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/commands/explain.h"
#include "tools/commands/robust_report.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

using experiments::PlanResult;
using experiments::PlanSettings;

struct PlanView {
  bool explain = false;
  bool full = false;  ///< Print equal pipelines too.
};

void describe(config::Visitor& v, PlanView& view) {
  v.optional("explain", view.explain,
             "say why the plan won: bottleneck, next best plans, what each constraint cost");
  v.optional("full", view.full, "print every pipeline, equal ones too");
}

/// "21.3 of 24.0 GiB": need and memory of the device that is nearest to its limit.
std::string fullest_gpu(const models::Evaluation& evaluation) {
  const auto fullest =
      std::max_element(evaluation.memory.by_gpu_type.begin(), evaluation.memory.by_gpu_type.end(),
                       [](const auto& a, const auto& b) {
                         return a.need.value / a.have.value < b.need.value / b.have.value;
                       });
  if (fullest == evaluation.memory.by_gpu_type.end()) return "-";
  return fmt::format("{:.1f} of {:.0f} GiB {}", fullest->need.value / 0x1p30,
                     fullest->have.value / 0x1p30, fullest->gpu);
}

/// Judged time of the plan that the planner would return if it could not ask the judge.
std::string own_choice_cell(const experiments::RunReport& report) {
  if (!report.search || !report.evaluation) return "-";
  return seconds_cell(report.search->own_choice.value_or(report.evaluation->iteration_time).value);
}

/// Dollars per million tokens when all GPUs of the cluster are paid, those that idle as well.
std::string cluster_dollars_cell(const experiments::RunReport& report,
                                 const models::Cluster& cluster) {
  if (!report.evaluation || !report.evaluation->dollars_per_million_tokens) return "-";
  const auto whole = experiments::cluster_dollars(*report.evaluation->dollars_per_million_tokens,
                                                  cluster, ir::devices_of(*report.plan));
  return whole ? fmt::format("${:.3f}", whole->value) : "-";
}

/// An interrupt came before its turn.
bool is_not_run(const PlanResult& result, const experiments::RunReport& report) {
  return result.interrupted && report.looked_at_nothing();
}

std::string ranking(const PlanResult& result, experiments::CostModel cost) {
  const std::vector<experiments::RunReport>& reports = result.planners;
  std::vector<const experiments::RunReport*> order;
  for (const experiments::RunReport& report : reports) order.push_back(&report);
  std::stable_sort(order.begin(), order.end(),
                   [](const experiments::RunReport* a, const experiments::RunReport* b) {
                     const auto time = [](const experiments::RunReport* report) {
                       return report->evaluation ? report->evaluation->iteration_time.value
                                                 : std::numeric_limits<double>::infinity();
                     };
                     return time(a) < time(b);
                   });
  const bool idle = std::any_of(reports.begin(), reports.end(), [&](const auto& report) {
    return report.evaluation && report.evaluation->dollars_per_million_tokens &&
           std::ssize(ir::devices_of(*report.plan)) < result.inputs.cluster.size();
  });
  Table table;
  table.column("planner")
      .number("estimate s")
      .number(cost == experiments::CostModel::simulator ? "simulated s" : "closed form s")
      .number("judged")
      .number("own choice s")
      .number("tokens/s");
  table.number("MFU").column("peak memory (worst GPU)").number("GPUs");
  table.number(idle ? "$/M tokens (cluster)" : "$/M tokens");
  if (idle) table.number("(used GPUs)");
  table.number("work").column("verdict");
  for (const experiments::RunReport* report : order) {
    const auto& search = report->search;
    const auto& evaluation = report->evaluation;
    std::string verdict = is_not_run(result, *report) ? "not run" : "no plan";
    if (evaluation) verdict = evaluation->memory.fits() ? good("fits") : bad("does not fit");
    std::vector<std::string> cells = {
        report->name,
        search && search->estimate ? seconds_cell(search->estimate->value) : "-",
        evaluation ? seconds_cell(evaluation->iteration_time.value) : "-",
        search ? std::to_string(search->judged) : "-",
        own_choice_cell(*report),
        evaluation ? grouped(evaluation->tokens_per_second, 0) : "-",
        evaluation ? percent(evaluation->mfu) : "-",
        evaluation ? fullest_gpu(*evaluation) : "-",
        report->plan ? std::to_string(ir::devices_of(*report->plan).size()) : "-",
        cluster_dollars_cell(*report, result.inputs.cluster)};
    if (idle) cells.push_back(evaluation ? dollars(*evaluation) : "-");
    cells.push_back(search ? fmt::format("{} {}", grouped(static_cast<double>(search->work), 0),
                                         search->work_unit)
                           : "-");
    cells.push_back(verdict);
    table.row(std::move(cells));
  }
  return table.text(0, colors());
}

std::string notes_text(const PlanResult& result) {
  std::string text;
  for (const experiments::RunReport& report : result.planners) {
    if (!report.search || is_not_run(result, report)) continue;
    std::vector<std::string> notes = report.search->notes;
    if (!report.search->complete) notes.push_back("the search ended early");
    if (notes.empty()) continue;
    text += section(report.name, lines_text(notes, 8));
  }
  return text.empty() ? "" : "\n" + text;
}

std::string refusals_text(const PlanResult& result) {
  std::string text;
  for (const experiments::RunReport& report : result.planners) {
    if (report.infeasible && !is_not_run(result, report)) {
      text += fmt::format("\n{}: {}", bold(report.name), infeasible_text(*report.infeasible));
    }
  }
  return text;
}

void print_plan(const PlanResult& result, const PlanSettings& settings, const PlanView& view) {
  if (result.robust) {
    print(robust_text(*result.robust));
    if (settings.output && result.robust->plan) print(fmt::format("plan: {}\n", *settings.output));
    return;
  }
  const std::vector<experiments::RunReport>& reports = result.planners;
  print(job_line(result.inputs) + "\n" + ranking(result, settings.judge.cost) + notes_text(result) +
        refusals_text(result));
  const experiments::RunReport* best = result.best_report();
  if (best == nullptr) return;
  const std::string by = reports.size() > 1 ? fmt::format("\nBest: {}\n", best->name) : "\n";
  print(by + plan_text(*best->plan, result.inputs, view.full) + "\n" +
        evaluation_text(*best->evaluation, result.inputs, *best->plan, view.full));
  if (view.explain) print("\n" + explanation(*best, reports, result.inputs));
  if (settings.output || settings.timeline) print("\n");
  if (settings.output) print(fmt::format("plan: {}\n", *settings.output));
  if (settings.timeline) {
    print(fmt::format("timeline: {} (open it in {})\n", *settings.timeline, kTimelineViewer));
  }
}

}  // namespace

extern const Command kPlan;
const Command kPlan = command<experiments::plan, print_plan, PlanView>(
    "plan", "Make a plan with one planner or several, and simulate it",
    "plan --planner hexiscale --cluster hexiscale_case_study --model llama2_13b --global-batch 24 "
    "--sequence-length 4096");

}  // namespace orrery::tools
