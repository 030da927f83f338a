#include "experiments/study/result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "experiments/study/summary.h"
#include "models/base/hash.h"
#include "models/config/document.h"
#include "models/ir/names.h"
#include "models/spec/library.h"

namespace orrery::experiments {

/// Written at build time: version and hash of the sources (cmake/source_hash.cmake).
extern const char* const kProgramVersion;
namespace {

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

std::map<std::string, std::string> input_cells(const Manifest& manifest, const PlannedRun& run,
                                               const RunIdentity& identity) {
  const RunSpec& spec = run.spec;
  const auto name = [](CostModel cost) {
    for (const auto& [value, text] : enum_names(cost)) {
      if (value == cost) return text;
    }
    return "";
  };
  std::map<std::string, std::string> cells = {
      {"run", identity.hash},
      {"cluster", spec.cluster.value},
      {"model", spec.model.value},
      {"planner", spec.planner ? spec.planner->name.value : ""},
      {"planner_options", spec.planner ? options_text(*spec.planner) : ""},
      {"plan", spec.plan ? spec.plan->value : ""},
      {"profile", spec.profile ? spec.profile->value : ""},
      {"cost", name(spec.cost)},
      {"global_batch", std::to_string(spec.job.global_batch)},
      {"sequence_length", std::to_string(spec.job.sequence_length)},
      {"dtype", ir::name_of(spec.job.dtype)},
      {"collapsed", spec.collapsed ? "true" : "false"},
      {"jitter", fmt::format("{:.10g}", spec.simulation.jitter)},
      {"work_budget", std::to_string(spec.work_budget)},
      {"seed", std::to_string(spec.seed)},
      {"version", program_version()},
      {"manifest_hash", manifest.hash},
      {"cluster_hash", identity.cluster_hash},
      {"workload_hash", identity.workload_hash}};
  for (const auto& [path, text] : run.axes) {
    if (!columns_of_axes().contains(path)) cells[path] = text;
  }
  return cells;
}

}  // namespace

std::string program_version() { return kProgramVersion; }

RunIdentity identify(const PlannedRun& run, const LoadedRun& loaded) {
  RunIdentity identity;
  identity.cluster_hash = loaded.cluster.hash;
  identity.workload_hash = loaded.workload.hash;
  for (const models::GpuType& gpu : loaded.cluster.gpu_types) identity.gpus.push_back(gpu.name);
  std::sort(identity.gpus.begin(), identity.gpus.end());
  identity.hash = content_hash(fmt::format(
      "{}\ncluster {}\nworkload {}\nplan {}\nprofile {}\nversion {}\n", run.hash,
      loaded.cluster.hash, loaded.workload.hash, loaded.plan ? models::plan_hash(*loaded.plan) : "",
      loaded.profile_hash, program_version()));
  return identity;
}

std::string effective_config(const RunSpec& spec, const RunIdentity& identity,
                             const RunOutcome& outcome) {
  config::Value tree = config::to_value(spec);
  config::Value about = config::Value::map({});
  about.append("version", config::Value::scalar(program_version()));
  about.append("run", config::Value::scalar(identity.hash));
  about.append("cluster", config::Value::scalar(identity.cluster_hash));
  about.append("workload", config::Value::scalar(identity.workload_hash));
  tree.append("hashes", std::move(about));
  config::Value simgrid = config::Value::map({});
  for (const auto& [name, value] : outcome.simgrid) {
    simgrid.append(name, config::Value::scalar(value));
  }
  tree.append("simgrid", std::move(simgrid));
  return config::to_yaml(tree);
}

std::string summary_json(const RunIdentity& identity, const RunOutcome& outcome) {
  Json json = {{"schema", kSummarySchema}, {"run", identity.hash}};
  json["status"] = outcome.evaluation ? "ok" : "infeasible";
  json["reason"] =
      outcome.infeasible ? outcome.infeasible->constraint + ": " + outcome.infeasible->witness : "";
  if (outcome.search) json.update(search_json(*outcome.search));
  if (outcome.plan) json.update(plan_json(*outcome.plan));
  if (outcome.evaluation) json.update(evaluation_json(*outcome.evaluation));
  return json.dump(2) + "\n";
}

std::string failure_json(const std::string& hash, const std::string& reason) {
  const Json json = {
      {"schema", kSummarySchema}, {"run", hash}, {"status", "failed"}, {"reason", reason}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool is_summary_of(const std::string& text, const std::string& hash) {
  const Json json = Json::parse(text, nullptr, false);
  const auto is = [&json](const char* key, const std::string& value) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() && (value.empty() || *found == value);
  };
  return json.is_object() && is("schema", kSummarySchema) && is("run", hash) && is("status", "") &&
         is("reason", "");
}

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

std::vector<std::string> csv_columns(const std::vector<std::string>& axes,
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
                           "schedule",
                           "pipelines",
                           "stages",
                           "micro_batches",
                           "devices",
                           "pipeline_times_s",
                           "synchronization_s",
                           "compute_s",
                           "tensor_parallel_s",
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

std::vector<std::string> csv_row(const std::vector<std::string>& columns, const Manifest& manifest,
                                 const PlannedRun& run, const RunIdentity& identity,
                                 const std::string& summary) {
  const Json json = Json::parse(summary);
  const std::map<std::string, std::string> inputs = input_cells(manifest, run, identity);
  std::vector<std::string> cells;
  for (const std::string& column : columns) {
    const auto input = inputs.find(column);
    if (input != inputs.end()) {
      cells.push_back(input->second);
    } else {
      const auto result = json.find(column);
      cells.push_back(result == json.end() ? "" : cell(*result));
    }
  }
  return cells;
}

}  // namespace orrery::experiments
