#include "experiments/study/mixed_length_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "experiments/study/clock.h"
#include "experiments/study/commands.h"
#include "experiments/study/files.h"
#include "experiments/study/mixed_length.h"
#include "experiments/study/summary.h"
#include "models/base/ids.h"
#include "models/config/document.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSteps = "steps.csv";

/// Everything that the result of a run depends on: the names too, which are in steps.csv.
Identity identity_of(const LoadedMixedLength& loaded) {
  MixedLengthRun run = loaded.run;
  run.job = config::to_value(loaded.job);
  Identity identity{
      config::to_value(run),
      {{"cluster", loaded.cluster.hash},
       {"workload",
        models::build_workload(loaded.shape, loaded.job.sequence_length, loaded.job.dtype).hash}}};
  identity.settings.append("case", config::Value::scalar(loaded.run.name));
  identity.settings.append("system", config::Value::scalar(loaded.run.system));
  identity.settings.append("lengths", config::to_value(loaded.lengths));
  identity.settings.append("stream", config::Value::scalar(std::to_string(loaded.stream)));
  return identity;
}

/// Sums of a run's steps.csv.
Json sums_of(const std::string& steps) {
  const auto rows = parse_csv(steps);
  std::vector<double> times;
  double switching = 0;
  double switches = 0;
  double tokens = 0;
  for (std::size_t r = 1; r < rows.size(); ++r) {
    times.push_back(std::strtod(rows[r][5].c_str(), nullptr));
    switching += std::strtod(rows[r][6].c_str(), nullptr);
    switches += std::strtod(rows[r][7].c_str(), nullptr);
    tokens += std::strtod(rows[r].back().c_str(), nullptr);
  }
  const auto count = static_cast<double>(times.size());
  double sum = 0;
  for (const double time : times) sum += time;
  std::sort(times.begin(), times.end());
  const auto quantile = [&](double q) { return times[as_size(std::lround(q * (count - 1)))]; };
  Json json;
  json["mean_s"] = rounded(sum / count);
  json["low_s"] = rounded(quantile(0.1));
  json["high_s"] = rounded(quantile(0.9));
  json["switch_s"] = rounded(switching / count);
  json["switches"] = rounded(switches / count);
  json["computed_tokens"] = rounded(tokens / count);
  return json;
}

std::vector<std::string> search_lines(const planners::FoundStrategies& found) {
  return {
      fmt::format("searched: {} strategies, {} sets; on the samples {:.3f} s a step by the "
                  "model, {:.3f} s simulated",
                  found.strategies, found.sets, found.modeled.value, found.simulated.value)};
}

/// effective.yaml, steps.csv, summary.json and, where they were searched, strategies.yaml.
RunSeconds fill_mixed_length(const std::string& folder, const LoadedMixedLength& loaded,
                             const Identity& identity,
                             const std::function<void(double)>& on_progress) {
  RunSeconds seconds;
  const Clock::time_point start = Clock::now();
  MixedLengthSession session(loaded);
  seconds.planning = seconds_since(start);
  write_text_file(folder + "/effective.yaml", identity.effective_config({}));
  Json summary = begin_summary(identity.hash(), session.infeasible());
  if (!session.infeasible()) {
    const Clock::time_point begin = Clock::now();
    const std::string steps = run_steps(loaded, session, on_progress);
    seconds.evaluation = seconds_since(begin);
    write_text_file(folder + "/" + kSteps, steps);
    summary.update(sums_of(steps));
    summary["strategies"] = session.strategies();
  }
  if (session.found()) {
    summary["search"] = search_lines(*session.found());
    config::Value found = config::Value::map({});
    found.append("strategies", config::to_value(session.found()->set.strategies));
    write_text_file(folder + "/strategies.yaml", config::to_yaml(found));
  }
  write_text_file(folder + "/summary.json", summary_text(summary));
  return seconds;
}

TaskList mixed_length_tasks(const Study& study, std::vector<Point> points,
                            const models::Library& library, const RunnerOptions&,
                            config::Diagnostics& diagnostics) {
  TaskList list;
  list.columns = {"run",     "case",     "lengths",  "context",         "system",
                  "planner", "cluster",  "model",    "steps",           "seed",
                  "version", "status",   "reason",   "mean_s",          "low_s",
                  "high_s",  "switch_s", "switches", "computed_tokens", "strategies"};
  const auto results = std::find(list.columns.begin(), list.columns.end(), "version");
  const std::set<std::string> inputs(list.columns.begin(), results);
  for (const std::string& axis : axis_names(study)) {
    if (!inputs.contains(axis)) list.columns.push_back(axis);
  }
  for (const auto& [point, loaded] :
       load_mixed_lengths(study, std::move(points), library, diagnostics)) {
    const Identity identity = identity_of(*loaded);
    Task task{
        point, identity.hash(), fmt::format("{} {}", loaded->run.name, loaded->run.system), "",
        {},    nullptr};
    task.inputs = {point.axes.begin(), point.axes.end()};
    for (const auto& [column, text] :
         TextPairs{{"run", task.hash},
                   {"case", loaded->run.name},
                   {"lengths", loaded->lengths.name},
                   {"context", std::to_string(loaded->job.sequence_length)},
                   {"system", loaded->run.system},
                   {"planner", loaded->run.planner.value},
                   {"cluster", loaded->run.cluster.value},
                   {"model", loaded->run.model.value},
                   {"steps", std::to_string(loaded->run.steps)},
                   {"seed", std::to_string(loaded->run.seed)},
                   {"version", identity.version()}}) {
      task.inputs[column] = text;
    }
    task.fill = [loaded = loaded, identity](const std::string& folder,
                                            const std::function<void(double)>& on_progress) {
      return fill_mixed_length(folder, *loaded, identity, on_progress);
    };
    list.tasks.push_back(std::move(task));
  }
  return list;
}

/// What lies in the folder of a run, or nothing.
std::string text_if_there(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) ? read_text_file(path) : "";
}

}  // namespace

std::vector<std::pair<Point, std::shared_ptr<LoadedMixedLength>>> load_mixed_lengths(
    const Study& study, std::vector<Point> points, const models::Library& library,
    config::Diagnostics& diagnostics) {
  std::vector<std::pair<Point, std::shared_ptr<LoadedMixedLength>>> all;
  DistinctProblems distinct(diagnostics);
  std::vector<std::string> streams;
  for (auto& [point, run] :
       read_settings<MixedLengthRun>(std::move(points), diagnostics, [](const auto&, auto&) {})) {
    run.name = point.on("case");
    run.system = point.on("system");
    config::Diagnostics found;
    auto loaded = std::make_shared<LoadedMixedLength>(
        load_mixed_length(std::move(run), study.folder, library, found));
    distinct.take(found);
    if (!found.empty()) continue;
    const std::string content = config::dump(loaded->lengths);
    const auto same = std::find(streams.begin(), streams.end(), content);
    loaded->stream = static_cast<std::uint64_t>(same - streams.begin());
    if (same == streams.end()) streams.push_back(content);
    all.emplace_back(std::move(point), std::move(loaded));
  }
  return all;
}

void describe(config::Visitor& v, MixedLengthSummary& summary) {
  v.title("Mixed lengths");
  v.required("case", summary.of_case, "");
  v.required("system", summary.system, "");
  v.required("status", summary.status, "ok, infeasible or failed; empty: not run yet");
  v.required("reason", summary.reason, "");
  v.required("mean_seconds", summary.mean, "of a step");
  v.required("low_seconds", summary.low, "10 % of the steps are below");
  v.required("high_seconds", summary.high, "90 % of the steps are below");
  v.required("switch_seconds", summary.switching, "of a step");
  v.required("switches", summary.switches, "in a step");
  v.required("computed_tokens", summary.computed_tokens, "in a step");
  v.required("strategies", summary.strategies, "in words");
  v.required("search", summary.search, "of the strategies, in words");
}

MixedLengthSummary mixed_length_summary(const Task& run, const std::string& results) {
  MixedLengthSummary out;
  out.of_case = run.inputs.at("case");
  out.system = run.inputs.at("system");
  std::string text = text_if_there(results + "/runs/" + run.hash + "/summary.json");
  if (text.empty()) text = text_if_there(results + "/failed/" + run.hash + "/summary.json");
  if (text.empty()) return out;
  const Json json = Json::parse(text);
  const auto number = [&](const char* key) { return json.value(key, 0.0); };
  const auto lines = [&](const char* key) { return json.value(key, std::vector<std::string>{}); };
  out.status = json.value("status", "");
  out.reason = json.value("reason", "");
  out.mean = Seconds{number("mean_s")};
  out.low = Seconds{number("low_s")};
  out.high = Seconds{number("high_s")};
  out.switching = Seconds{number("switch_s")};
  out.switches = number("switches");
  out.computed_tokens = number("computed_tokens");
  out.strategies = lines("strategies");
  out.search = lines("search");
  return out;
}

extern const StudyCommand kMixedLengthStudy;
const StudyCommand kMixedLengthStudy = {
    .name = "mixed_length",
    .summary = "steps with sequences of mixed lengths under one system",
    .seeds = {"seed"},
    .choice = nullptr,
    .settings = settings_text<MixedLengthRun>(),
    .resolve = nullptr,
    .table = kSteps,
    .tasks = mixed_length_tasks};

}  // namespace orrery::experiments
