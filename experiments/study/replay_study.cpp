/// `command: replay`: recovery policies on the same traces: what they keep of the time, and what it
/// costs. A run is a policy under one trace (replay_session.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>

#include "experiments/study/checks.h"
#include "experiments/study/commands.h"
#include "experiments/study/files.h"
#include "experiments/study/replay_session.h"
#include "experiments/study/summary.h"
#include "models/base/ids.h"
#include "models/config/document.h"
#include "models/ir/names.h"
#include "planners/catalog.h"

namespace orrery::experiments {
namespace {

using config::Value;

constexpr const char* kPolicy = "policy";

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
    json[wall_column(bucket)] = result.wall[index_of(bucket)].count;
  }
  for (const sim::Bucket bucket : buckets()) {
    json[hours_column(bucket)] = rounded(result.device_hours.in_plan[index_of(bucket)]);
  }
  json["background_ns"] = result.background.count;
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

/// Curves over time, for figures: a row for each ReplayPoint, with the tokens that count so far.
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

/// Where the time of each of kSlices equal parts of the horizon went, for charts over time. Within
/// a stretch between two events the parts of a bucket are one piece (ReplaySpan).
std::string buckets_csv(const sim::ReplayResult& result) {
  constexpr std::int64_t kSlices = 200;
  const auto edge = [&](std::int64_t k) {
    return result.horizon.count / kSlices * k + result.horizon.count % kSlices * k / kSlices;
  };
  std::vector<std::array<std::int64_t, sim::kBuckets>> slices(kSlices);
  std::int64_t slice = 0;
  for (const sim::ReplaySpan& span : result.spans) {
    for (std::int64_t at = span.start.nanoseconds; at < span.end.nanoseconds;) {
      while (edge(slice + 1) <= at) ++slice;
      const std::int64_t to = std::min(span.end.nanoseconds, edge(slice + 1));
      slices[static_cast<std::size_t>(slice)][index_of(span.bucket)] += to - at;
      at = to;
    }
  }
  std::vector<std::string> cells = {"from_ns", "to_ns"};
  for (const sim::Bucket bucket : buckets()) cells.push_back(wall_column(bucket));
  std::string text = csv_line(cells);
  for (std::int64_t k = 0; k < kSlices; ++k) {
    cells = {std::to_string(edge(k)), std::to_string(edge(k + 1))};
    for (const std::int64_t part : slices[static_cast<std::size_t>(k)]) {
      cells.push_back(std::to_string(part));
    }
    text += csv_line(cells);
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

std::map<std::string, std::string> replay_inputs(const Study& study, const Point& point,
                                                 const ReplayRun& run, const CaseHashes& hashes) {
  const ReplayCase& one = run.what;
  std::map<std::string, std::string> cells = {point.axes.begin(), point.axes.end()};
  const std::map<std::string, std::string> fixed = {
      {"case", one.name},
      {"policy", run.policy.value.shown()},
      {"policy_name", run.policy.value.name},
      {"options", options_text(run.policy.value.options)},
      {"seed", std::to_string(run.how.seed)},
      {"cluster", one.cluster.value},
      {"model", one.model.value},
      {"global_batch", std::to_string(one.job.global_batch)},
      {"sequence_length", std::to_string(one.job.sequence_length)},
      {"dtype", ir::name_of(one.job.dtype)},
      {"trace", one.trace.file ? one.trace.file->value : one.trace.generator->value},
      {"plan", one.plan ? one.plan->value : ""},
      {"planner", one.planner ? one.planner->name.value : ""},
      {"profile", one.profile ? one.profile->value : ""},
      {"planning_time", name_of_enum(run.how.planning_time)},
      {"prices", name_of_enum(run.how.prices)},
      {"background_transfers", name_of_enum(run.how.background_transfers)},
      {"study_hash", study.hash},
      {"cluster_hash", hashes.cluster},
      {"workload_hash", hashes.workload},
      {"trace_hash", hashes.trace},
      {"plan_hash", hashes.plan},
      {"profile_hash", hashes.profile}};
  for (const auto& [column, text] : fixed) cells[column] = text;
  return cells;
}

std::vector<std::string> replay_columns(const Study& study) {
  std::vector<std::string> columns = {"run", "case", "policy", "policy_name", "options", "seed"};
  const std::vector<std::string> inputs = {
      "cluster",    "model",         "global_batch", "sequence_length",
      "dtype",      "trace",         "plan",         "planner",
      "profile",    "planning_time", "prices",       "background_transfers",
      "version",    "study_hash",    "cluster_hash", "workload_hash",
      "trace_hash", "plan_hash",     "profile_hash"};
  for (const std::string& axis : axis_names(study)) {
    const auto shows = [&](const std::vector<std::string>& known) {
      return std::find(known.begin(), known.end(), axis) != known.end();
    };
    if (!shows(columns) && !shows(inputs)) columns.push_back(axis);
  }
  columns.insert(columns.end(), inputs.begin(), inputs.end());
  for (const char* name : {"status", "reason", "own_plan", "first_plan_problem", "horizon_ns"}) {
    columns.emplace_back(name);
  }
  for (const sim::Bucket bucket : buckets()) columns.push_back(wall_column(bucket));
  columns.emplace_back("background_ns");
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

/// effective.yaml, profile_entries.txt, points.csv, buckets.csv, interruptions.csv and
/// summary.json.
RunSeconds fill_replay(const std::string& folder, const LoadedReplayCase& loaded,
                       const ReplayRun& run, const Identity& identity,
                       const models::AnswerStore* answers,
                       const std::function<void(double)>& on_progress) {
  const ReplayOutcome outcome =
      replay_once(loaded, run.policy.value, run.how, answers, on_progress);
  write_text_file(folder + "/effective.yaml", identity.effective_config(outcome.simgrid));
  std::string entries;
  for (const std::string& line : outcome.profile_entries) entries += line + "\n";
  write_text_file(folder + "/profile_entries.txt", entries);
  write_text_file(folder + "/points.csv", points_csv(outcome.result));
  write_text_file(folder + "/buckets.csv", buckets_csv(outcome.result));
  write_text_file(folder + "/interruptions.csv", interruptions_csv(outcome.result));
  Json summary = begin_summary(identity.hash(), outcome.infeasible);
  summary["own_plan"] = outcome.own_plan ? fmt::format("{}: {}", outcome.own_plan->constraint,
                                                       outcome.own_plan->witness)
                                         : "";
  if (!outcome.infeasible) summary.update(result_json(outcome.result));
  summary["planner_searches"] = outcome.work.searches;
  summary["iterations_simulated"] = outcome.work.simulated;
  summary["iterations_asked"] = outcome.work.asked;
  write_text_file(folder + "/summary.json", summary_text(summary));
  return outcome.seconds;
}

std::string replay_in_words(const ReplayRun& run, const Point& point) {
  std::string text = fmt::format("{} {}", run.what.name, run.policy.value.shown());
  for (const auto& [axis, value] : point.axes) {
    if (axis == "case" || axis == kPolicy) continue;
    text += fmt::format(" {}={}", axis.substr(axis.find('.') + 1), value);
  }
  return text + fmt::format(" seed {}", run.how.seed);
}

/// The loaded cases of a study, each once.
class ReplayCases {
 public:
  ReplayCases(const Study& study, const models::Library& library, TaskList& list,
              const models::AnswerStore* answers, config::Diagnostics& diagnostics)
      : study_(study),
        library_(library),
        list_(list),
        answers_(answers),
        diagnostics_(diagnostics) {}

  /// Null if it has problems, or if its data is not there: then it is skipped.
  std::shared_ptr<const LoadedReplayCase> load(const ReplayCase& one) {
    const auto [known, is_new] =
        cases_.try_emplace(one.name + "\n" + config::to_yaml(config::to_value(one)));
    if (!is_new) return known->second;
    config::Diagnostics found;
    auto loaded = std::make_shared<const LoadedReplayCase>(
        load_replay_case(one, study_.folder, library_, found, answers_));
    for (const config::Problem& each : found.problems()) {
      diagnostics_.add(each.at, each.what, each.hint);
    }
    if (!found.empty()) return nullptr;
    if (loaded->traces.absent().empty()) return known->second = std::move(loaded);
    list_.skipped.push_back(
        fmt::format("case '{}' is skipped: {} is not there (set ORRERY_DATA to the folder with "
                    "the traces of others)",
                    one.name, loaded->traces.absent()));
    return nullptr;
  }

 private:
  const Study& study_;
  const models::Library& library_;
  TaskList& list_;
  const models::AnswerStore* answers_;
  config::Diagnostics& diagnostics_;
  std::map<std::string, std::shared_ptr<const LoadedReplayCase>> cases_;
};

TaskList replay_tasks(const Study& study, std::vector<Point> points, const models::Library& library,
                      const RunnerOptions& options, config::Diagnostics& diagnostics) {
  TaskList list;
  list.columns = replay_columns(study);
  ReplayCases cases(study, library, list, options.answers.get(), diagnostics);
  DistinctProblems distinct(diagnostics);
  std::set<std::string> checked;
  const auto check = [](const ReplayRun& run, config::Diagnostics& found) {
    if (!run.policy.value.name.empty()) check_policy(run.policy, found);
  };
  for (auto& [point, run] : read_settings<ReplayRun>(std::move(points), diagnostics, check)) {
    run.what.name = point.on("case");
    config::Diagnostics found;
    const std::shared_ptr<const LoadedReplayCase> loaded = cases.load(run.what);
    const std::string policy = config::to_flow(config::to_value(run.policy.value));
    if (loaded != nullptr && checked.insert(run.what.name + policy).second) {
      check_policy_values(run.policy.value, run.policy.at, found);
    }
    distinct.take(found);
    if (loaded == nullptr || !found.empty()) continue;
    const Identity identity = replay_identity(*loaded, run);
    Task task{point,
              identity.hash(),
              replay_in_words(run, point),
              in_words(*loaded),
              replay_inputs(study, point, run, loaded->hashes),
              nullptr};
    task.inputs["run"] = task.hash;
    task.inputs["version"] = identity.version();
    task.repeatable = is_repeatable(run);
    task.fill = [loaded, run = run, identity, answers = options.answers](
                    const std::string& folder, const std::function<void(double)>& on_progress) {
      return fill_replay(folder, *loaded, run, identity, answers.get(), on_progress);
    };
    list.tasks.push_back(std::move(task));
  }
  return list;
}

/// Expands `all`. The same label on two policies of a list would mix their rows.
void resolve_policies(Value& list, Study& study, config::Diagnostics& diagnostics) {
  std::vector<config::Located<ReplayPolicy>> policies;
  std::set<std::string> labels;
  for (const Value& item : list.items) {
    config::Located<ReplayPolicy> policy;
    if (!config::describe_value(item, policy, diagnostics)) return;
    check_policy(policy, diagnostics);
    if (!labels.insert(policy.value.shown()).second) {
      diagnostics.add(policy.at, fmt::format("policy '{}' appears twice", policy.value.shown()),
                      "give one of them another label");
    }
    policies.push_back(std::move(policy));
  }
  if (policies.empty() && !list.is_null()) return;  // an axis without values
  for (const std::string& note : options_not_of_all(policies)) {
    if (std::find(study.notes.begin(), study.notes.end(), note) == study.notes.end()) {
      study.notes.push_back(note);
    }
  }
  const config::Position at = list.at;
  list = Value::list({}, at);
  for (const auto& policy : expand_policies(policies)) list.items.push_back(as_value(policy));
}

/// Axes of policies, of the study and of its cases; without any, all policies of the catalog.
void resolve_replay(Study& study, config::Diagnostics& diagnostics) {
  bool given = study.settings.find(kPolicy) != nullptr;
  for (Value::Entry& axis : study.axes.entries) {
    if (axis.key == kPolicy) {
      given = true;
      resolve_policies(axis.value, study, diagnostics);
      continue;
    }
    for (Value& one : axis.value.items) {
      given |= one.find(kPolicy) != nullptr;
      for (Value::Entry& entry : one.entries) {
        if (entry.key != "axes") continue;
        for (Value::Entry& own : entry.value.entries) {
          if (own.key == kPolicy) resolve_policies(own.value, study, diagnostics);
        }
      }
    }
  }
  if (given) return;
  Value all;
  resolve_policies(all, study, diagnostics);
  study.axes.append(kPolicy, std::move(all));
}

}  // namespace

extern const StudyCommand kReplayStudy;
const StudyCommand kReplayStudy = {.name = "replay",
                                   .summary = "a recovery policy on a trace of failures",
                                   .seeds = {"seed"},
                                   .choice = kPolicy,
                                   .settings = settings_text<ReplayRun>(),
                                   .resolve = resolve_replay,
                                   .table = nullptr,
                                   .tasks = replay_tasks};

}  // namespace orrery::experiments
