/// orrery plan: makes plans, simulates them, ranks them.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "planners/catalog.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/text.h"
#include "tools/commands/explain.h"
#include "tools/commands/inputs.h"
#include "tools/commands/run_tasks.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

struct PlanSettings {
  JobSettings job;
  JudgeSettings judge;
  std::string planners;              ///< Comma-separated names, or "all".
  std::vector<std::string> options;  ///< name=value
  std::optional<std::int64_t> work_budget;
  Text output;
  Text timeline;
  bool full = false;  ///< Print equal pipelines too.
  bool explain = false;
  bool json = false;
};

void describe(config::Visitor& v, PlanSettings& settings) {
  v.required("planner", settings.planners, "name, comma-separated names, or all", {.letter = 'p'});
  v.optional("option", settings.options,
             "NAME=VALUE: knob of the planner (orrery list planners NAME); may be repeated",
             {.letter = 'o'});
  v.optional("work_budget", settings.work_budget, "most plans to examine; default: no limit");
  v.optional("output", settings.output, "write the best plan to this YAML file");
  v.optional("explain", settings.explain,
             "say why the plan won: bottleneck, next best plans, what each constraint cost");
  v.optional("full", settings.full, "print every pipeline, equal ones too");
  v.optional("timeline", settings.timeline,
             "write the best plan's timeline: FILE.perfetto-trace or FILE.json (Chrome)",
             {.letter = 't'});
  describe_json(v, settings.json);
  describe(v, settings.job, BatchDefault::fixed);
  describe(v, settings.judge);
  if (settings.work_budget) v.at_least("work_budget", *settings.work_budget, std::int64_t{1});
}

/// What `--json` prints.
struct PlanDocument {
  std::string cluster;
  std::string model;
  std::optional<std::string> best;  ///< Planner with the shortest simulated time; none: no plan.
  std::vector<experiments::RunReport> planners;
};

void describe(config::Visitor& v, PlanDocument& document) {
  v.title("Plans");
  v.required("cluster", document.cluster, "");
  v.required("model", document.model, "");
  v.optional("best", document.best, "");
  v.required("planners", document.planners, "");
}

std::vector<std::string> planner_list(const PlanSettings& args, config::Diagnostics& diagnostics) {
  std::vector<std::string> names = split(args.planners, ',');
  if (std::find(names.begin(), names.end(), "all") != names.end()) {
    names = planners::planner_names();
  }
  if (names.empty()) {
    diagnostics.add(at_flag("--planner"), "no planner is named", "orrery list planners");
  }
  std::set<std::string> seen;
  std::vector<std::string> once;
  for (const std::string& name : names) {
    if (seen.insert(name).second) once.push_back(name);
  }
  return once;
}

bool knows_option(const std::string& planner, const std::string& option) {
  const planners::PlannerEntry* entry = planners::find_planner(planner);
  if (entry == nullptr) return false;
  const auto options = entry->options();
  return std::any_of(options.begin(), options.end(),
                     [&](const planners::OptionInfo& info) { return info.name == option; });
}

/// Options for one planner of several: those that it knows, and those that none of them knows, so
/// that they are reported.
experiments::PlannerChoice choose(const std::string& name, const std::vector<std::string>& all,
                                  const PlanSettings& args, config::Diagnostics& diagnostics) {
  experiments::PlannerChoice choice;
  choice.name = {name, at_flag("--planner")};
  for (const std::string& text : args.options) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      if (name != all.front()) continue;
      diagnostics.add(at_flag("--option"), fmt::format("'{}' is not NAME=VALUE", text),
                      "as in -o rounds=50; orrery list planners NAME shows the options");
      continue;
    }
    const std::string option = text.substr(0, equals);
    const bool known_to_any = std::any_of(
        all.begin(), all.end(), [&](const auto& other) { return knows_option(other, option); });
    if (all.size() > 1 && known_to_any && !knows_option(name, option)) continue;
    if (all.size() > 1 && !known_to_any && name != all.front()) continue;
    choice.options[option] = text.substr(equals + 1);
    choice.option_positions[option] = at_flag("--option");
  }
  return choice;
}

std::vector<OutputFile> outputs_of(const PlanSettings& args) {
  return {{"--output", args.output}, {"--timeline", args.timeline}};
}

/// Reports an option that is given twice: which one counts?
void check_once(const std::vector<std::string>& options, config::Diagnostics& diagnostics) {
  std::set<std::string> seen;
  for (const std::string& text : options) {
    const std::string name = text.substr(0, text.find('='));
    if (seen.insert(name).second) continue;
    diagnostics.add(at_flag("--option"), fmt::format("'{}' is given twice", name));
  }
}

/// Without a job file a plan is made for kDefaultBatch samples of kDefaultLength tokens.
JobSettings with_defaults(JobSettings job) {
  job.set_default("global_batch", kDefaultBatch);
  job.set_default("sequence_length", kDefaultLength);
  return job;
}

std::vector<RunTask> make_tasks(const PlanSettings& args, config::Diagnostics& diagnostics) {
  const models::Library library = open_library(diagnostics);
  const std::vector<std::string> names = planner_list(args, diagnostics);
  experiments::RunSpec spec = make_spec(with_defaults(args.job), args.judge, {}, diagnostics);
  spec.work_budget = args.work_budget.value_or(0);
  check_names(spec, library, diagnostics);
  check_exports({args.timeline.value_or(""), "", ""}, spec.cost, diagnostics);
  check_outputs(outputs_of(args), input_files(args.job), diagnostics);
  check_once(args.options, diagnostics);
  std::vector<RunTask> tasks;
  for (const std::string& name : names) {
    spec.planner = choose(name, names, args, diagnostics);
    if (!diagnostics.empty()) {
      // The flags are wrong; still say whether planner, cluster and model are known.
      if (spec.planner) experiments::check_planner(*spec.planner, diagnostics);
      continue;
    }
    tasks.push_back({name, load(spec, library, diagnostics), {}});
  }
  diagnostics.raise();
  return tasks;
}

/// The report with the shortest simulated time, among those that fit if any does.
const experiments::RunReport* best_of(const std::vector<experiments::RunReport>& reports) {
  const experiments::RunReport* best = nullptr;
  const auto key = [](const experiments::RunReport& report) {
    return std::pair(!report.evaluation->memory.fits(), report.evaluation->iteration_time.value);
  };
  for (const experiments::RunReport& report : reports) {
    if (!report.evaluation) continue;
    if (best == nullptr || key(report) < key(*best)) best = &report;
  }
  return best;
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

std::string ranking(const std::vector<experiments::RunReport>& reports,
                    experiments::CostModel cost) {
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
  Table table;
  table.column("planner")
      .number("estimate s")
      .number(cost == experiments::CostModel::simulator ? "simulated s" : "closed form s")
      .number("tokens/s");
  table.number("MFU").column("fullest GPU").number("$/M tokens").number("work");
  table.column("verdict");
  for (const experiments::RunReport* report : order) {
    const auto& search = report->search;
    const auto& evaluation = report->evaluation;
    std::string verdict = "no plan";
    if (evaluation) verdict = evaluation->memory.fits() ? good("fits") : bad("does not fit");
    table.row({report->name,
               search && search->estimate ? seconds_cell(search->estimate->value) : "-",
               evaluation ? seconds_cell(evaluation->iteration_time.value) : "-",
               evaluation ? grouped(evaluation->tokens_per_second, 0) : "-",
               evaluation ? percent(evaluation->mfu) : "-",
               evaluation ? fullest_gpu(*evaluation) : "-", evaluation ? dollars(*evaluation) : "-",
               search ? fmt::format("{} {}", grouped(static_cast<double>(search->work), 0),
                                    search->work_unit)
                      : "-",
               verdict});
  }
  return table.text(0, colors());
}

std::string notes_text(const std::vector<experiments::RunReport>& reports) {
  std::string text;
  for (const experiments::RunReport& report : reports) {
    if (!report.search) continue;
    std::vector<std::string> notes = report.search->notes;
    if (!report.search->complete) notes.push_back("the search ended early");
    if (notes.empty()) continue;
    text += section(report.name, lines_text(notes, 8));
  }
  return text.empty() ? "" : "\n" + text;
}

std::string refusals_text(const std::vector<experiments::RunReport>& reports) {
  std::string text;
  for (const experiments::RunReport& report : reports) {
    if (report.infeasible) {
      text += fmt::format("\n{}: {}", bold(report.name), infeasible_text(*report.infeasible));
    }
  }
  return text;
}

void print_reports(const std::vector<RunTask>& tasks,
                   const std::vector<experiments::RunReport>& reports,
                   const experiments::RunReport* best, const PlanSettings& args) {
  print(job_line(tasks.front().run) + "\n" + ranking(reports, tasks.front().run.spec.cost) +
        notes_text(reports) + refusals_text(reports));
  if (best == nullptr) return;
  const std::string by = reports.size() > 1 ? fmt::format("\nBest: {}\n", best->name) : "\n";
  print(by + plan_text(*best->plan, tasks.front().run, args.full) + "\n" +
        evaluation_text(*best->evaluation, args.full));
  if (args.explain) print("\n" + explanation(*best, reports, tasks.front().run));
}

/// Writes plan and timeline; for the timeline the plan is simulated once more.
void write_outputs(const PlanSettings& args, const RunTask& task,
                   const experiments::RunReport& best) {
  std::string text;
  if (args.output) {
    write_file(*args.output, models::dump_plan(*best.plan));
    text += fmt::format("\nplan: {}\n", *args.output);
  }
  if (args.timeline) {
    RunTask again = task;
    again.run.plan = best.plan;
    again.run.spec.planner.reset();
    again.exports.timeline = *args.timeline;
    run_tasks({again});
    text += fmt::format("{}timeline: {} (open it in {})\n", text.empty() ? "\n" : "",
                        *args.timeline, kTimelineViewer);
  }
  if (!args.json) print(text);
}

}  // namespace

namespace {

int run(const PlanSettings& args, config::Diagnostics& problems) {
  const std::vector<RunTask> tasks = make_tasks(args, problems);
  probe_outputs(outputs_of(args));
  const std::vector<experiments::RunReport> reports = run_tasks(tasks);
  const experiments::RunReport* best = best_of(reports);
  if (args.json) {
    const experiments::LoadedRun& run = tasks.front().run;
    PlanDocument document{run.cluster.name, run.workload.name, std::nullopt, reports};
    if (best != nullptr) document.best = best->name;
    print(to_json(document));
  } else {
    print_reports(tasks, reports, best, args);
  }
  if (best != nullptr) write_outputs(args, tasks.front(), *best);
  if (was_interrupted()) {
    fmt::print(stderr, "orrery: interrupted: these are the best plans so far\n");
    return kInterrupted;
  }
  return best == nullptr ? 1 : 0;
}

}  // namespace

extern const Command kPlan;
const Command kPlan =
    command<PlanSettings, run>("plan", "Make a plan with one planner or several, and simulate it",
                               "plan --planner hexiscale --cluster hexiscale_case_study --model "
                               "llama2_13b --global-batch 24 --sequence-length 4096");

}  // namespace orrery::tools
