/// orrery simulate: one iteration of given plans.
#include <fmt/format.h>

#include <utility>

#include "models/spec/step_plan.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/commands/inputs.h"
#include "tools/commands/run_tasks.h"
#include "tools/commands/simulate_step.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

/// What `--json` prints.
struct SimulateDocument {
  std::string cluster;
  std::string model;
  std::vector<experiments::RunReport> plans;
};

void describe(config::Visitor& v, SimulateDocument& document) {
  v.title("Simulations");
  v.required("cluster", document.cluster, "");
  v.required("model", document.model, "");
  v.required("plans", document.plans, "");
}

std::string report_text(const experiments::RunReport& report, const experiments::LoadedRun& run,
                        bool full) {
  std::string text =
      fmt::format("\n{}\n{}", section(report.name, plan_text(*report.plan, run, full)),
                  evaluation_text(*report.evaluation, full));
  if (!report.busiest_links.empty()) {
    text += fmt::format("\n{}", section("Busiest links", lines_text(report.busiest_links, 5)));
  }
  if (!report.prices.empty()) {
    text += fmt::format("\n{}", section("Where times of operations come from",
                                        lines_text(report.prices, kPricesShown)));
  }
  if (report.ops > 0) {
    text +=
        fmt::format("\n{} operations on {} ranks\n", grouped(static_cast<double>(report.ops), 0),
                    grouped(static_cast<double>(report.ranks), 0));
  }
  return text;
}

std::string comparison(const std::vector<experiments::RunReport>& reports) {
  Table table;
  table.column("plan").number("iteration s").number("tokens/s").number("MFU").number("$/M tokens");
  table.column("verdict");
  for (const experiments::RunReport& report : reports) {
    const models::Evaluation& evaluation = *report.evaluation;
    table.row({report.name, seconds_cell(evaluation.iteration_time.value),
               grouped(evaluation.tokens_per_second, 0), percent(evaluation.mfu),
               dollars(evaluation), verdict_text(evaluation)});
  }
  return fmt::format("\n{}", table.text(0, colors()));
}

std::string exports_text(const Exports& exports) {
  std::string text;
  if (!exports.timeline.empty()) {
    text += fmt::format("timeline: {} (open it in {})\n", exports.timeline, kTimelineViewer);
  }
  if (!exports.log.empty()) text += fmt::format("run log: {}\n", exports.log);
  if (!exports.program.empty()) text += fmt::format("program: {}\n", exports.program);
  return text.empty() ? "" : "\n" + text;
}

}  // namespace

void describe(config::Visitor& v, SimulateSettings& settings) {
  v.required("plan", settings.plans, "plan files, or one step plan", {.positional = true});
  v.optional("timeline", settings.timeline,
             "write a timeline: FILE.perfetto-trace or FILE.json (Chrome)", {.letter = 't'});
  v.optional("log", settings.log, "write the run log (protobuf)");
  v.optional("program", settings.program, "write the lowered program (protobuf)");
  v.optional("full", settings.full, "print every pipeline, equal ones too");
  describe_json(v, settings.json);
  describe(v, settings.job, BatchDefault::of_the_plan);
  describe(v, settings.judge);
}

namespace {

int run(const SimulateSettings& args, config::Diagnostics& problems) {
  if (!args.plans.empty() && models::is_step_plan(args.plans.front())) {
    problems.raise();
    return simulate_step_plan(args);
  }
  const Exports exports{args.timeline.value_or(""), args.log.value_or(""),
                        args.program.value_or("")};
  config::Diagnostics diagnostics;
  if (exports.any() && args.plans.size() > 1) {
    diagnostics.add(at_flag("--timeline, --log, --program"),
                    fmt::format("one file for {} plans", args.plans.size()), "simulate one plan");
  }
  const std::vector<OutputFile> outputs = {
      {"--timeline", args.timeline}, {"--log", args.log}, {"--program", args.program}};
  std::vector<std::string> inputs = input_files(args.job);
  inputs.insert(inputs.end(), args.plans.begin(), args.plans.end());
  check_outputs(outputs, inputs, diagnostics);
  diagnostics.raise();
  std::vector<RunTask> tasks;
  for (experiments::LoadedRun& run : load_plans(args.plans, args.job, args.judge, {}, problems)) {
    const std::string name = run.spec.plan->value;
    tasks.push_back({name, std::move(run), exports});
  }
  check_exports(exports, tasks.front().run.spec.cost, diagnostics);
  diagnostics.raise();
  probe_outputs(outputs);
  const std::vector<experiments::RunReport> reports = run_tasks(tasks);
  const experiments::LoadedRun& first = tasks.front().run;
  if (args.json) {
    print(to_json(SimulateDocument{first.cluster.name, first.workload.name, reports}));
    return 0;
  }
  print(job_line(first));
  for (std::size_t i = 0; i < reports.size(); ++i) {
    print(report_text(reports[i], tasks[i].run, args.full));
  }
  if (reports.size() > 1) print(comparison(reports));
  print(exports_text(exports));
  return 0;
}

}  // namespace

extern const Command kSimulate;
const Command kSimulate = command<SimulateSettings, run>(
    "simulate", "Simulate one iteration of plans",
    "simulate experiments/hexiscale/case_study/plans/hexiscale.yaml --cluster hexiscale_case_study "
    "--model llama2_13b --sequence-length 4096");

}  // namespace orrery::tools
