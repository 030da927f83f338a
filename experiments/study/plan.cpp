#include "experiments/study/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "experiments/study/checks.h"
#include "experiments/study/exports.h"
#include "experiments/study/files.h"
#include "experiments/study/limits.h"
#include "experiments/study/run_tasks.h"
#include "models/check/validate.h"
#include "models/config/document.h"
#include "models/ir/names.h"
#include "models/spec/library.h"
#include "planners/catalog.h"

namespace orrery::experiments {
namespace {

constexpr const char* kJudgedOption = "evaluate_top";

std::vector<std::string> planner_list(const PlanSettings& args, config::Diagnostics& diagnostics) {
  std::vector<std::string> names;
  for (const std::string& name : args.planners) {  // A wrong name beside `all` is one, too.
    if (name != "all") {
      names.push_back(name);
      continue;
    }
    const std::vector<std::string> all = planners::planner_names();
    names.insert(names.end(), all.begin(), all.end());
  }
  if (names.empty()) {
    diagnostics.add(at_setting("planner"), "no planner is named", "orrery list planners");
  }
  std::set<std::string> seen;
  std::vector<std::string> once;
  for (const std::string& name : names) {
    if (seen.insert(name).second) once.push_back(name);
  }
  return once;
}

/// Options for one planner of several: those that it knows, those that none of them knows, so
/// that they are reported, and the same access to the judge for all.
PlannerChoice choose(const std::string& name, const std::vector<std::string>& all,
                     const PlanSettings& args) {
  PlannerChoice choice;
  choice.name = {name, at_setting("planner")};
  for (const auto& [option, value] : args.options) {
    const bool known_to_any =
        std::any_of(all.begin(), all.end(),
                    [&option = option](const auto& other) { return knows_option(other, option); });
    if (all.size() > 1 && known_to_any && !knows_option(name, option)) continue;
    if (all.size() > 1 && !known_to_any && name != all.front()) continue;
    choice.options[option] = value;
    choice.option_positions[option] = at_setting("option");
  }
  if (all.size() > 1 && knows_option(name, kJudgedOption)) {
    choice.options.try_emplace(kJudgedOption, std::to_string(kJudgedInComparisons));
  }
  return choice;
}

std::vector<OutputFile> outputs_of(const PlanSettings& args) {
  return {{"output", args.output}, {"timeline", args.timeline}};
}

std::vector<RunTask> make_tasks(const PlanSettings& args, config::Diagnostics& diagnostics) {
  const models::Library library = open_library(diagnostics);
  const std::vector<std::string> names = planner_list(args, diagnostics);
  RunSpec spec = make_spec(args.job, args.judge, {}, diagnostics);
  spec.work_budget = args.work_budget.value_or(0);
  spec.executable_by = args.executable_by;
  if (args.near) spec.near = {*args.near, at_setting("near")};
  if (args.within && !args.near) {
    diagnostics.add(at_setting("within"), "is for --near", "--near PLAN");
  }
  spec.within = args.within.value_or(spec.within);
  for (const std::string& key : args.robust.given) {
    diagnostics.add(at_setting(key), "is for --robust", "--robust TRACE");
  }
  check_names(spec, library, diagnostics);
  check_exports({args.timeline.value_or(""), "", ""}, spec.cost, diagnostics);
  check_outputs(outputs_of(args), input_files(args.job), diagnostics);
  std::vector<RunTask> tasks;
  for (const std::string& name : names) {
    spec.planner = choose(name, names, args);
    if (!diagnostics.empty()) {
      // The flags are wrong; still say whether planner, cluster and model are known.
      if (spec.planner) check_planner(*spec.planner, diagnostics);
      continue;
    }
    tasks.push_back({name, load_run(spec, "", library, diagnostics), {}});
  }
  diagnostics.raise();
  return tasks;
}

/// The settings of robust_plan() in those of plan().
RobustSettings robust_settings(const PlanSettings& settings, config::Diagnostics& diagnostics) {
  if (settings.timeline) {
    diagnostics.add(at_setting("timeline"), "does not go with --robust",
                    "--output writes the plan, and orrery simulate its timeline");
  }
  for (const auto& [given, key] : {std::pair{settings.executable_by.has_value(), "executable_by"},
                                   {settings.near.has_value(), "near"},
                                   {settings.within.has_value(), "within"}}) {
    if (given) diagnostics.add(at_setting(key), "does not go with --robust");
  }
  RobustSettings out;
  out.job = settings.job;
  out.judge = settings.judge;
  out.planners = settings.planners;
  out.options = settings.options;
  out.work_budget = settings.work_budget;
  out.choices = settings.robust;
  out.output = settings.output;
  return out;
}

/// The report with the shortest simulated time, among those that fit if any does.
const RunReport* best_of(const std::vector<RunReport>& reports) {
  const RunReport* best = nullptr;
  const auto key = [](const RunReport& report) {
    return std::pair(!report.evaluation->memory.fits(), report.evaluation->iteration_time.value);
  };
  for (const RunReport& report : reports) {
    if (!report.evaluation) continue;
    if (best == nullptr || key(report) < key(*best)) best = &report;
  }
  return best;
}

/// The tasks with the least ZeRO stage that their job allows alone, by the tasks' indices; none
/// where there is no other, and none of planners that see themselves what a ZeRO stage costs.
std::vector<std::pair<std::size_t, RunTask>> narrower(const std::vector<RunTask>& tasks) {
  std::vector<std::pair<std::size_t, RunTask>> narrow;
  const std::vector<int>& stages = tasks.front().run.spec.job.allowed.zero_stages;
  if (stages.size() < 2) return narrow;
  const int least = *std::min_element(stages.begin(), stages.end());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const auto* entry = planners::find_planner(tasks[i].run.spec.planner->name.value);
    if (entry != nullptr && entry->judges_all) continue;
    narrow.emplace_back(i, tasks[i]);
    narrow.back().second.run.spec.job.allowed.zero_stages = {least};
    narrow.back().second.name += fmt::format(" with ZeRO {} alone", least);
  }
  return narrow;
}

/// Says in the notes of a search where the freedom to choose a ZeRO stage made its plan slower.
void note_cost_of_freedom(RunReport& report, const RunReport& narrow, int zero_stage) {
  constexpr double kNoticed = 1.01;
  if (!report.evaluation || !narrow.evaluation || !report.search || !narrow.search) return;
  if (!narrow.evaluation->memory.fits()) return;
  const Seconds time = report.evaluation->iteration_time;
  const Seconds less = narrow.evaluation->iteration_time;
  if (time <= kNoticed * less) return;
  std::string why = "its estimate is not that of the judge";
  if (report.search->estimate && narrow.search->estimate) {
    why = fmt::format(
        "its estimate, {:.4g} s against {:.4g} s, {}", report.search->estimate->value,
        narrow.search->estimate->value,
        *report.search->estimate <= *narrow.search->estimate
            ? "does not see why"
            : "says so too, so that the search or the few plans judged left that plan out");
  }
  report.search->notes.push_back(
      fmt::format("with ZeRO {} alone its plan takes {:.4g} s, {:.1f} % less: {}", zero_stage,
                  less.value, 100 * (1 - less / time), why));
}

/// The flags of what a plan uses that the job does not allow: "--recompute none,full --zero-stages
/// 3".
std::string flags_for(const ir::Plan& plan, const models::Allowed& allowed) {
  std::set<std::string> recompute, zero;
  bool more_recompute = false, more_zero = false, sequence = false;
  int tensor_parallel = 0;
  const auto lacks = [](const auto& list, const auto& value) {
    return std::find(list.begin(), list.end(), value) == list.end();
  };
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        recompute.insert(ir::name_of(segment.recompute));
        zero.insert(std::to_string(segment.zero.stage));
        more_recompute |= lacks(allowed.recompute, segment.recompute);
        more_zero |= lacks(allowed.zero_stages, segment.zero.stage);
        for (const ir::Group& group : segment.groups) {
          sequence |= group.sequence != ir::SequenceParallelism::none;
          tensor_parallel = std::max(tensor_parallel, group.tensor_parallel);
        }
      }
    }
  }
  std::vector<std::string> flags;
  if (more_recompute) flags.push_back(fmt::format("--recompute {}", fmt::join(recompute, ",")));
  if (more_zero) flags.push_back(fmt::format("--zero-stages {}", fmt::join(zero, ",")));
  if (sequence && !allowed.sequence_parallel) flags.emplace_back("--sequence-parallel");
  if (allowed.max_tensor_parallel > 0 && tensor_parallel > allowed.max_tensor_parallel) {
    flags.push_back(fmt::format("--max-tensor-parallel {}", tensor_parallel));
  }
  return fmt::format("{}", fmt::join(flags, " "));
}

/// The tasks of planners that found nothing with all allowed that saves memory; by the tasks'
/// indices.
std::vector<std::pair<std::size_t, RunTask>> wider(const std::vector<RunTask>& tasks,
                                                   const std::vector<RunReport>& reports) {
  std::vector<std::pair<std::size_t, RunTask>> wide;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (reports[i].plan || !reports[i].search) continue;
    RunTask task = tasks[i];
    models::Allowed& allowed = task.run.spec.job.allowed;
    const models::Allowed all = everything_allowed();
    allowed.recompute = all.recompute;
    allowed.zero_stages = all.zero_stages;
    allowed.sequence_parallel = all.sequence_parallel;
    allowed.max_tensor_parallel = all.max_tensor_parallel;
    if (config::dump(task.run.spec.job) == config::dump(tasks[i].run.spec.job)) continue;
    task.name += " with all that saves memory";
    wide.emplace_back(i, std::move(task));
  }
  return wide;
}

/// Asks planners that found nothing once more with all allowed, and says in their notes which flags
/// would help.
void add_helpful_flags(const std::vector<RunTask>& tasks, std::vector<RunReport>& reports,
                       const Call& call, const models::AnswerStore* answers) {
  if (call.cancellation.requested()) return;
  const auto wide = wider(tasks, reports);
  if (wide.empty()) return;
  std::vector<RunTask> again;
  for (const auto& [i, task] : wide) again.push_back(task);
  const std::vector<RunReport> found = run_tasks(again, call, answers);
  for (std::size_t w = 0; w < wide.size(); ++w) {
    if (!found[w].plan || !found[w].evaluation->memory.fits()) continue;
    const std::size_t i = wide[w].first;
    reports[i].search->notes.push_back(fmt::format(
        "would find a plan of {:.4g} s with {}", found[w].evaluation->iteration_time.value,
        flags_for(*found[w].plan, tasks[i].run.spec.job.allowed)));
  }
}

/// Batches that no number of equal replicas divides.
std::string batch_note(std::int64_t batch, std::int64_t gpus) {
  if (batch < 2 || gpus < 2 || std::gcd(batch, gpus) > 1) return "";
  const auto near = [&](std::int64_t step) {
    std::int64_t found = batch;
    while (found > 0 && std::gcd(found, gpus) * 2 <= std::min(found, gpus)) found += step;
    return found;
  };
  const std::int64_t less = near(-1), more = near(1);
  return fmt::format(
      "a global batch of {} has no divisor in common with {} GPUs: most planners give replicas "
      "equal shares and find few plans for it; {} would divide well",
      batch, gpus, less > 0 ? fmt::format("{} or {}", less, more) : fmt::format("{}", more));
}

/// Writes plan and timeline; for the timeline the plan is simulated once more.
void write_outputs(const PlanSettings& settings, const RunTask& task, const RunReport& best,
                   const Call& call) {
  if (settings.output) {
    write_plan(*settings.output, *best.plan, task.run.cluster, origin_of(task.run.spec));
  }
  if (!settings.timeline) return;
  RunTask again = task;
  again.run.plan = best.plan;
  again.run.spec.planner.reset();
  again.exports.timeline = *settings.timeline;
  run_tasks({again}, call);
}

}  // namespace

void describe(config::Visitor& v, PlanSettings& settings) {
  v.optional("planner", settings.planners,
             "name, comma-separated names, or all; of several each has 8 plans judged (-o "
             "evaluate_top=N: another number); default: orrery",
             {.letter = 'p', .commas = true});
  v.optional("option", settings.options,
             "NAME=VALUE: knob of the planner (orrery list planners NAME); may be repeated",
             {.letter = 'o'});
  v.optional("work_budget", settings.work_budget, "most plans to examine; default: no limit");
  v.optional("executable_by", settings.executable_by,
             "megatron, flagscale or executor (Orrery's own): who is to run the plan; orrery "
             "searches what it can run, plans of other planners that it cannot run are refused");
  v.optional("near", settings.near,
             "plan file that is trained by now: the planner orrery takes the plan to which `orrery "
             "switch` moves least of those that are nearly as fast as the best");
  v.optional("within", settings.within,
             "of --near: how much slower than the best, as a share; default: 0.05");
  v.optional("output", settings.output, "write the best plan to this YAML file");
  v.optional("timeline", settings.timeline,
             "write the best plan's timeline: FILE.perfetto-trace or FILE.json (Chrome)",
             {.letter = 't'});
  describe(v, settings.job);
  describe(v, settings.judge);
  v.section("Robust planning");
  describe(v, settings.robust);
  if (settings.work_budget) v.at_least("work_budget", *settings.work_budget, std::int64_t{1});
  if (settings.within) v.between("within", *settings.within, 0.0, 10.0);
}

void describe(config::Visitor& v, PlanResult& result) {
  v.title("Plans");
  v.required("cluster", result.cluster, "its name");
  v.required("model", result.model, "its name");
  v.optional("best", result.best, "planner with the shortest simulated time");
  v.required("planners", result.planners, "what each came to");
  v.optional("robust", result.robust, "with --robust: plan, policy, interval and spares together");
}

int exit_status(const PlanResult& result) {
  if (result.robust) return exit_status(*result.robust);
  if (result.interrupted) return kInterrupted;
  return result.best ? 0 : 1;
}

const RunReport* PlanResult::best_report() const {
  const auto found = std::find_if(planners.begin(), planners.end(),
                                  [&](const RunReport& report) { return report.name == best; });
  return found == planners.end() ? nullptr : &*found;
}

PlanResult plan(const PlanSettings& settings, const Call& call, config::Diagnostics problems) {
  if (settings.robust.trace) {
    const RobustSettings choice = robust_settings(settings, problems);
    PlanResult result;
    result.robust = robust_plan(choice, call, std::move(problems));
    result.cluster = result.robust->cluster;
    result.model = result.robust->model;
    return result;
  }
  const std::vector<RunTask> tasks = make_tasks(settings, problems);
  probe_outputs(outputs_of(settings));
  const LoadedRun& first = tasks.front().run;
  for (const std::string& note : substitute_notes(first.cluster, first.spec.job.dtype)) {
    call.note(note);
  }
  for (const std::string& line : first.carried_over) call.note(line);
  const std::string divides = batch_note(first.spec.job.global_batch, std::ssize(first.devices));
  if (!divides.empty()) call.note(divides);
  PlanResult result;
  const auto answers = settings.judge.cache.open(call.on_note);
  std::vector<RunTask> all = tasks;
  const auto narrow = narrower(tasks);
  for (const auto& [of, task] : narrow) all.push_back(task);
  result.planners = run_tasks(all, call, answers.get());
  for (std::size_t i = 0; i < narrow.size(); ++i) {
    note_cost_of_freedom(result.planners[narrow[i].first], result.planners[tasks.size() + i],
                         narrow[i].second.run.spec.job.allowed.zero_stages.front());
  }
  result.planners.resize(tasks.size());
  add_helpful_flags(tasks, result.planners, call, answers.get());
  result.inputs = tasks.front().run;
  result.cluster = result.inputs.cluster.name;
  result.model = result.inputs.workload.name;
  if (const RunReport* best = best_of(result.planners)) {
    result.best = best->name;
    write_outputs(settings, tasks.front(), *best, call);
  }
  result.interrupted = call.cancellation.requested();
  if (result.interrupted) call.note("interrupted: these are the best plans so far");
  return result;
}

}  // namespace orrery::experiments
