#include "experiments/study/replay_result.h"

#include <fmt/format.h>

#include <map>

#include "experiments/study/files.h"
#include "experiments/study/result.h"
#include "experiments/study/runner.h"
#include "experiments/study/summary.h"
#include "models/ir/names.h"

namespace orrery::experiments {
namespace {

std::vector<sim::Bucket> buckets() {
  std::vector<sim::Bucket> all;
  for (std::size_t b = 0; b < sim::kBuckets; ++b) all.push_back(static_cast<sim::Bucket>(b));
  return all;
}

std::string wall_column(sim::Bucket bucket) { return fmt::format("{}_ns", sim::name_of(bucket)); }
std::string hours_column(sim::Bucket bucket) {
  return fmt::format("gpu_hours.{}", sim::name_of(bucket));
}

Json result_json(const sim::ReplayResult& result) {
  Json json;
  json["first_plan_problem"] = result.first_plan_problem;
  json["horizon_ns"] = result.horizon.count;
  for (const sim::Bucket bucket : buckets()) {
    json[wall_column(bucket)] = result.wall[static_cast<std::size_t>(bucket)].count;
  }
  for (const sim::Bucket bucket : buckets()) {
    json[hours_column(bucket)] =
        rounded(result.device_hours.in_plan[static_cast<std::size_t>(bucket)]);
  }
  json["gpu_hours.spare"] = rounded(result.device_hours.spare);
  json["gpu_hours.absent"] = rounded(result.device_hours.absent);
  json["ettr"] = rounded(result.ettr);
  json["goodput"] = rounded(result.goodput);
  json["iterations"] = result.iterations;
  json["samples"] = result.samples;
  json["tokens"] = result.tokens;
  json["reference_s"] = rounded(result.reference.value);
  if (result.priced) {
    json["dollars"] = rounded(result.dollars.value);
    if (result.tokens > 0) {
      json["dollars_per_million_tokens"] =
          rounded(result.dollars.value / (static_cast<double>(result.tokens) * 1e-6));
    }
  }
  json["events"] = result.events;
  json["interruptions"] = result.interruptions;
  json["decisions"] = result.decisions;
  std::int64_t lost = 0;
  for (const sim::InterruptionRecord& record : result.log) lost += record.rolled_back;
  json["lost_iterations"] = lost;
  return json;
}

template <class E>
std::string enum_text(E value) {
  for (const auto& [each, text] : enum_names(E{})) {
    if (each == value) return text;
  }
  return "";
}

std::string options_text(const ReplayPolicy& policy) {
  std::string text;
  for (const auto& [name, value] : policy.options) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  }
  return text;
}

std::map<std::string, std::string> input_cells(const ReplayStudy& study, const ReplayRun& run,
                                               const CaseHashes& hashes) {
  const ReplayCase& one = study.cases[run.of_case];
  std::map<std::string, std::string> cells = {
      {"run", run.hash},
      {"case", one.name},
      {"policy", run.policy.shown()},
      {"policy_name", run.policy.name},
      {"options", options_text(run.policy)},
      {"seed", std::to_string(run.seed)},
      {"cluster", one.cluster.value},
      {"model", one.model.value},
      {"global_batch", std::to_string(one.job.global_batch)},
      {"sequence_length", std::to_string(one.job.sequence_length)},
      {"dtype", ir::name_of(one.job.dtype)},
      {"trace", one.trace.file ? one.trace.file->value : one.trace.generator->value},
      {"plan", one.plan ? one.plan->value : ""},
      {"profile", one.profile ? one.profile->value : ""},
      {"planning_time", enum_text(study.planning_time)},
      {"prices", enum_text(study.prices)},
      {"background_transfers", enum_text(study.background_transfers)},
      {"version", program_version()},
      {"study_hash", study.hash},
      {"cluster_hash", hashes.cluster},
      {"workload_hash", hashes.workload},
      {"trace_hash", hashes.trace},
      {"plan_hash", hashes.plan},
      {"profile_hash", hashes.profile}};
  for (const auto& [path, value] : run.axes) cells[path] = value;
  return cells;
}

}  // namespace

std::string replay_summary_json(const std::string& hash, const ReplayOutcome& outcome) {
  Json json = {{"schema", kSummarySchema}, {"run", hash}};
  json["status"] = outcome.infeasible ? "infeasible" : "ok";
  json["reason"] =
      outcome.infeasible ? outcome.infeasible->constraint + ": " + outcome.infeasible->witness : "";
  if (!outcome.infeasible) json.update(result_json(outcome.result));
  json["planner_searches"] = outcome.work.searches;
  json["iterations_simulated"] = outcome.work.simulated;
  json["iterations_asked"] = outcome.work.asked;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string points_csv(const sim::ReplayResult& result) {
  const std::int64_t tokens = result.iterations > 0 ? result.tokens / result.iterations : 0;
  std::string text =
      csv_line({"at_ns", "iterations", "tokens", "live", "in_plan", "samples_per_second"});
  for (const sim::ReplayPoint& point : result.points) {
    text +=
        csv_line({std::to_string(point.at.nanoseconds), std::to_string(point.iterations),
                  std::to_string(point.iterations * tokens), std::to_string(point.live),
                  std::to_string(point.in_plan), fmt::format("{:.10g}", point.samples_per_second)});
  }
  return text;
}

std::string interruptions_csv(const sim::ReplayResult& result) {
  std::string text = csv_line({"at_ns", "cause", "reason", "rolled_back", "stall_ns"});
  for (const sim::InterruptionRecord& record : result.log) {
    text += csv_line({std::to_string(record.at.nanoseconds), record.cause, record.reason,
                      std::to_string(record.rolled_back), std::to_string(record.stall.count)});
  }
  return text;
}

std::vector<std::string> replay_columns(const ReplayStudy& study) {
  std::vector<std::string> columns = {"run", "case", "policy", "policy_name", "options", "seed"};
  for (const auto& axis : study.sweep) columns.push_back(axis.first);
  for (const char* name : {"cluster",
                           "model",
                           "global_batch",
                           "sequence_length",
                           "dtype",
                           "trace",
                           "plan",
                           "profile",
                           "planning_time",
                           "prices",
                           "background_transfers",
                           "version",
                           "study_hash",
                           "cluster_hash",
                           "workload_hash",
                           "trace_hash",
                           "plan_hash",
                           "profile_hash",
                           "status",
                           "reason",
                           "first_plan_problem",
                           "horizon_ns"}) {
    columns.emplace_back(name);
  }
  for (const sim::Bucket bucket : buckets()) columns.push_back(wall_column(bucket));
  for (const sim::Bucket bucket : buckets()) columns.push_back(hours_column(bucket));
  for (const char* name :
       {"gpu_hours.spare", "gpu_hours.absent", "ettr", "goodput", "iterations", "samples", "tokens",
        "reference_s", "dollars", "dollars_per_million_tokens", "events", "interruptions",
        "decisions", "lost_iterations", "planner_searches", "iterations_simulated",
        "iterations_asked"}) {
    columns.emplace_back(name);
  }
  return columns;
}

std::vector<std::string> replay_row(const std::vector<std::string>& columns,
                                    const ReplayStudy& study, const ReplayRun& run,
                                    const CaseHashes& hashes, const std::string& summary) {
  const Json json = Json::parse(summary);
  const std::map<std::string, std::string> inputs = input_cells(study, run, hashes);
  std::vector<std::string> cells;
  for (const std::string& column : columns) {
    const auto input = inputs.find(column);
    const auto result = json.find(column);
    if (input != inputs.end()) {
      cells.push_back(input->second);
    } else {
      cells.push_back(result == json.end() ? "" : cell(*result));
    }
  }
  return cells;
}

}  // namespace orrery::experiments
