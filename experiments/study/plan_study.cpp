/// `command: plan`: a plan, made by a planner or read from a file, judged by a cost model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <system_error>

#include "experiments/study/checks.h"
#include "experiments/study/commands.h"
#include "experiments/study/execute.h"
#include "experiments/study/files.h"
#include "experiments/study/summary.h"
#include "models/ir/names.h"
#include "models/ir/perfetto.h"
#include "models/spec/library.h"
#include "planners/catalog.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

Json plan_json(const ir::Plan& plan) {
  std::vector<std::string> stages;
  std::vector<std::string> micro_batches;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    stages.push_back(fmt::format("{}", pipeline.stages.size()));
    micro_batches.push_back(
        fmt::format("{}x{}", pipeline.micro_batches, pipeline.micro_batch_size));
  }
  return {{"plan_hash", models::plan_hash(plan)},
          {"pipelines", plan.pipelines.size()},
          {"stages", fmt::format("{}", fmt::join(stages, ";"))},
          {"micro_batches", fmt::format("{}", fmt::join(micro_batches, ";"))},
          {"devices", ir::devices_of(plan).size()},
          {"schedule", ir::name_of(plan.schedule)}};
}

Json breakdown_json(const models::Breakdown& parts) {
  return {{"compute_s", rounded(parts.compute.value)},
          {"tensor_parallel_s", rounded(parts.tensor_parallel.value)},
          {"zero_s", rounded(parts.zero.value)},
          {"pipeline_s", rounded(parts.pipeline.value)},
          {"data_parallel_s", rounded(parts.data_parallel.value)},
          {"optimizer_s", rounded(parts.optimizer.value)},
          {"bubble_s", rounded(parts.bubble.value)}};
}

Json evaluation_json(const models::Evaluation& evaluation) {
  std::vector<std::string> ends;
  for (const Seconds time : evaluation.pipeline_times) {
    ends.push_back(fmt::format("{:.10g}", time.value));
  }
  Json json = {{"iteration_time_s", rounded(evaluation.iteration_time.value)},
               {"tokens_per_s", rounded(evaluation.tokens_per_second)},
               {"mfu", rounded(evaluation.mfu)},
               {"hfu", rounded(evaluation.hfu)},
               {"fits", evaluation.memory.fits()},
               {"memory_verdict", evaluation.memory.explain()},
               {"pipeline_times_s", fmt::format("{}", fmt::join(ends, ";"))}};
  if (evaluation.dollars_per_million_tokens) {
    json["dollars_per_million_tokens"] = rounded(evaluation.dollars_per_million_tokens->value);
  }
  if (evaluation.synchronization) {
    json["synchronization_s"] = rounded(evaluation.synchronization->value);
  } else {
    json.update(breakdown_json(evaluation.breakdown));
  }
  for (const ir::MemoryUse& use : evaluation.memory.by_gpu_type) {
    json["peak_gib." + use.gpu] = rounded(use.need.value / 0x1p30);
    json["fits." + use.gpu] = use.fits();
  }
  return json;
}

Json search_json(const planners::SearchReport& search) {
  Json json = {{"plans_examined", search.plans_examined},
               {"rejected_by_memory", search.rejected_by_memory},
               {"work", search.work},
               {"work_unit", search.work_unit},
               {"search_complete", search.complete}};
  if (search.estimate) json["planner_estimate_s"] = rounded(search.estimate->value);
  json["judged"] = search.judged;
  if (search.own_choice) json["own_choice_s"] = rounded(search.own_choice->value);
  return json;
}

/// Columns that show an axis.
const std::map<std::string, std::string>& columns_of_axes() {
  static const std::map<std::string, std::string> kColumns = {
      {"cluster", "cluster"},
      {"model", "model"},
      {"planner", "planner"},
      {"planner.name", "planner"},
      {"plan", "plan"},
      {"profile", "profile"},
      {"cost", "cost"},
      {"collapsed", "collapsed"},
      {"work_budget", "work_budget"},
      {"job.global_batch", "global_batch"},
      {"job.sequence_length", "sequence_length"},
      {"job.dtype", "dtype"}};
  return kColumns;
}

std::map<std::string, std::string> plan_inputs(const Study& study, const Point& point,
                                               const LoadedRun& loaded) {
  const RunSpec& spec = loaded.spec;
  std::map<std::string, std::string> cells = {
      {"cluster", spec.cluster.value},
      {"model", spec.model.value},
      {"planner", spec.planner ? spec.planner->name.value : ""},
      {"planner_options", spec.planner ? options_text(spec.planner->options) : ""},
      {"plan", spec.plan ? spec.plan->value : ""},
      {"profile", spec.profile ? spec.profile->value : ""},
      {"cost", name_of_enum(spec.cost)},
      {"global_batch", std::to_string(spec.job.global_batch)},
      {"sequence_length", std::to_string(spec.job.sequence_length)},
      {"dtype", ir::name_of(spec.job.dtype)},
      {"collapsed", spec.collapsed ? "true" : "false"},
      {"jitter", fmt::format("{:.10g}", spec.simulation.jitter)},
      {"work_budget", std::to_string(spec.work_budget)},
      {"seed", std::to_string(spec.seed)},
      {"manifest_hash", study.hash},
      {"cluster_hash", loaded.cluster.hash},
      {"workload_hash", loaded.workload.hash}};
  for (const auto& [axis, text] : point.axes) {
    if (!columns_of_axes().contains(axis)) cells[axis] = text;
  }
  return cells;
}

/// Search notes, memory verdict and busiest links for people.
std::string log_text(const RunOutcome& outcome) {
  std::string text;
  if (outcome.search) {
    for (const std::string& note : outcome.search->notes) text += "search: " + note + "\n";
  }
  if (outcome.infeasible) {
    text += fmt::format("infeasible: {}: {}\n", outcome.infeasible->constraint,
                        outcome.infeasible->witness);
  }
  if (outcome.evaluation) text += "memory: " + outcome.evaluation->memory.explain() + "\n";
  for (const std::string& line : outcome.busiest_links) text += "link: " + line + "\n";
  return text;
}

/// Columns of runs.csv: inputs, then results, then memory for each of `gpus`. Axes that the fixed
/// columns show are not repeated.
std::vector<std::string> plan_columns(const std::vector<std::string>& axes,
                                      const std::vector<std::string>& gpus) {
  std::vector<std::string> columns = {
      "run",   "cluster",   "model",  "planner",      "planner_options",
      "plan",  "profile",   "cost",   "global_batch", "sequence_length",
      "dtype", "collapsed", "jitter", "work_budget",  "seed"};
  for (const std::string& axis : axes) {
    if (!columns_of_axes().contains(axis)) columns.push_back(axis);
  }
  for (const char* name : {"version",
                           "manifest_hash",
                           "cluster_hash",
                           "workload_hash",
                           "plan_hash",
                           "status",
                           "reason",
                           "iteration_time_s",
                           "tokens_per_s",
                           "mfu",
                           "hfu",
                           "dollars_per_million_tokens",
                           "fits",
                           "memory_verdict",
                           "planner_estimate_s",
                           "plans_examined",
                           "rejected_by_memory",
                           "work",
                           "work_unit",
                           "search_complete",
                           "judged",
                           "own_choice_s",
                           "schedule",
                           "pipelines",
                           "stages",
                           "micro_batches",
                           "devices",
                           "pipeline_times_s",
                           "synchronization_s",
                           "compute_s",
                           "tensor_parallel_s",
                           "zero_s",
                           "pipeline_s",
                           "data_parallel_s",
                           "optimizer_s",
                           "bubble_s"}) {
    columns.emplace_back(name);
  }
  for (const std::string& gpu : gpus) columns.push_back("peak_gib." + gpu);
  for (const std::string& gpu : gpus) columns.push_back("fits." + gpu);
  return columns;
}

std::string plan_in_words(const RunSpec& spec) {
  const std::string by = spec.planner ? spec.planner->name.value
                                      : fs::path(spec.plan ? spec.plan->value : "").stem().string();
  return fmt::format("{} {} seed {}", spec.model.value, by, spec.seed);
}

std::string timeline(const models::Cluster& cluster, const RunOutcome& outcome) {
  const ir::TimelineNames names{
      [&](DeviceId id) { return fmt::format("GPU {} {}", id.value, cluster.gpu(id).name); },
      [&](DeviceId id) { return cluster.device(id).node; },
      [&](NodeId id) { return cluster.node(id).name; }};
  std::ostringstream out;
  ir::write_perfetto(outcome.program, outcome.log, names, out);
  return std::move(out).str();
}

/// effective.yaml, plan.yaml, summary.json, profile_entries.txt, log.txt and timeline.perfetto if
/// asked for.
RunSeconds fill_plan(const std::string& folder, LoadedRun loaded, const Identity& identity,
                     const RunnerOptions& options) {
  const bool timelines = options.timelines;
  Session session(std::move(loaded), options.answers.get());
  const RunOutcome outcome = session.execute(timelines, nullptr);
  write_text_file(folder + "/effective.yaml", identity.effective_config(outcome.simgrid));
  if (outcome.plan) write_text_file(folder + "/plan.yaml", models::dump_plan(*outcome.plan));
  std::string entries;
  for (const std::string& line : outcome.prices) entries += line + "\n";
  write_text_file(folder + "/profile_entries.txt", entries);
  if (timelines && !outcome.log.spans.empty()) {
    write_text_file(folder + "/timeline.perfetto", timeline(session.loaded().cluster, outcome));
  }
  std::fflush(nullptr);
  append_text_file(folder + "/log.txt", log_text(outcome));
  Json summary = begin_summary(identity.hash(), outcome.infeasible);
  if (outcome.search) summary.update(search_json(*outcome.search));
  if (outcome.plan) summary.update(plan_json(*outcome.plan));
  if (outcome.evaluation) summary.update(evaluation_json(*outcome.evaluation));
  write_text_file(folder + "/summary.json", summary_text(summary));
  return {outcome.planning_seconds, outcome.evaluation_seconds};
}

/// Clusters and models that points name, when none of them could be read.
void check_names(const std::vector<Point>& points, const models::Library& library,
                 config::Diagnostics& diagnostics) {
  DistinctProblems distinct(diagnostics);
  for (const Point& point : points) {
    config::Diagnostics found;
    for (const config::Value::Entry& entry : point.settings.entries) {
      const config::Value& name = entry.value;
      if (!name.is_scalar()) continue;
      if (entry.key == "cluster") models::load_cluster(name.text, library, name.at, found);
      if (entry.key == "model") models::load_model(name.text, library, name.at, found);
    }
    distinct.take(found);
  }
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): as StudyCommand::tasks.
TaskList plan_tasks(const Study& study, std::vector<Point> points, const models::Library& library,
                    const RunnerOptions& options, config::Diagnostics& diagnostics) {
  TaskList list;
  std::set<std::string> gpus;
  const auto check = [](const RunSpec& spec, config::Diagnostics& found) {
    if (spec.planner && !spec.planner->name.value.empty()) check_planner(*spec.planner, found);
  };
  auto runs = read_settings<RunSpec>(points, diagnostics, check);
  if (runs.empty()) check_names(points, library, diagnostics);
  std::set<std::string> seen;
  for (auto& [point, spec] : runs) {
    config::Diagnostics found;
    LoadedRun loaded = load_run(spec, study.folder, library, found);
    for (const config::Problem& problem : found.problems()) {
      if (seen.insert(to_string(problem)).second) {
        diagnostics.add(problem.at, problem.what, problem.hint);
      }
    }
    if (!found.empty()) continue;
    Identity identity{config::to_value(spec),
                      {{"cluster", loaded.cluster.hash},
                       {"workload", loaded.workload.hash},
                       {"plan", loaded.plan ? models::plan_hash(*loaded.plan) : ""},
                       {"profile", loaded.profile_hash}}};
    if (loaded.near) identity.hashes.emplace_back("near", models::plan_hash(*loaded.near));
    if (spec.planner && power_decides(spec.planner->options)) {
      identity.hashes.emplace_back("power", loaded.cluster.power_hash);
    }
    Task task{point,  identity.hash(), plan_in_words(spec), "", plan_inputs(study, point, loaded),
              nullptr};
    task.inputs["run"] = task.hash;
    task.inputs["version"] = identity.version();
    task.repeatable = !spec.planner || !planners::names_python(spec.planner->name.value);
    for (const models::GpuType& gpu : loaded.cluster.gpu_types) gpus.insert(gpu.name);
    task.fill = [&study, &library, spec = spec, identity, options](
                    const std::string& folder, const std::function<void(double)>&) {
      config::Diagnostics problems;
      LoadedRun again = load_run(spec, study.folder, library, problems);
      problems.raise();
      return fill_plan(folder, std::move(again), identity, options);
    };
    // A simulated plan has a timeline, if asked for.
    if (options.timelines && spec.cost == CostModel::simulator) {
      task.has_all = [](const std::string& folder) {
        std::error_code error;
        if (!fs::exists(fs::path(folder) / "plan.yaml", error)) return true;  // nothing to draw
        return fs::exists(fs::path(folder) / "timeline.perfetto", error);
      };
    }
    list.tasks.push_back(std::move(task));
  }
  list.columns = plan_columns(axis_names(study), {gpus.begin(), gpus.end()});
  return list;
}

}  // namespace

extern const StudyCommand kPlanStudy;
const StudyCommand kPlanStudy = {.name = "plan",
                                 .summary = "a plan, made or read, judged by a cost model",
                                 .seeds = {"seed", "simulation.seed"},
                                 .choice = "planner",
                                 .settings = settings_text<RunSpec>(),
                                 .resolve = nullptr,
                                 .table = nullptr,
                                 .tasks = plan_tasks};

}  // namespace orrery::experiments
