#include "experiments/study/mixed_length_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "experiments/study/clock.h"
#include "experiments/study/figure.h"
#include "experiments/study/files.h"
#include "experiments/study/result.h"
#include "experiments/study/summary.h"
#include "models/base/hash.h"
#include "models/config/document.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kShortSequence = 8192;  // Figure 16 of Hetu v2 counts sequences under 8K.
constexpr const char* kSteps = "steps.csv";

struct Run {
  std::size_t of_case = 0;
  std::size_t system = 0;
  std::string hash;
};

config::Value text_value(const std::string& text) { return config::Value::scalar(text); }

/// Everything that the result of a run depends on.
config::Value effective_config(const LoadedMixedLength& loaded, const Run& run) {
  const MixedLengthFile& file = loaded.file;
  const LoadedMixedLengthCase& one = loaded.cases[run.of_case];
  const MixedLengthSystem& system = file.cases[run.of_case].systems[run.system];
  config::Value tree = config::Value::map({});
  tree.append("case", text_value(file.cases[run.of_case].name));
  tree.append("system", text_value(system.name));
  tree.append("cluster", text_value(file.cluster.value));
  tree.append("model", text_value(file.model.value));
  tree.append("job", config::to_value(one.job));
  tree.append("lengths", config::to_value(one.lengths));
  if (file.tokens_per_step) {
    tree.append("tokens_per_step", text_value(std::to_string(*file.tokens_per_step)));
  }
  tree.append("steps", text_value(std::to_string(loaded.steps)));
  tree.append("seed", text_value(std::to_string(file.seed)));
  tree.append("stream", text_value(std::to_string(one.stream)));
  tree.append("planner", text_value(system.planner.value));
  tree.append("strategies", config::to_value(system.set));
  config::Value hashes = config::Value::map({});
  hashes.append("version", text_value(program_version()));
  hashes.append("cluster", text_value(loaded.cluster.hash));
  hashes.append(
      "workload",
      text_value(
          models::build_workload(loaded.shape, one.job.sequence_length, one.job.dtype).hash));
  tree.append("hashes", std::move(hashes));
  return tree;
}

std::vector<std::string> step_columns() {
  return {"case",      "lengths",  "context",        "system",        "step",
          "step_s",    "switch_s", "switches",       "phases",        "strategy",
          "sequences", "longest",  "share_under_8k", "micro_batches", "computed_tokens"};
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
  const auto quantile = [&](double q) {
    return times[static_cast<std::size_t>(std::lround(q * (count - 1)))];
  };
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

class MixedLengthRuns final : public RunSet {
 public:
  explicit MixedLengthRuns(const LoadedMixedLength& loaded) : loaded_(loaded) {
    for (std::size_t c = 0; c < loaded.file.cases.size(); ++c) {
      for (std::size_t s = 0; s < loaded.file.cases[c].systems.size(); ++s) {
        Run run{c, s, ""};
        run.hash = content_hash(config::to_yaml(effective_config(loaded, run)));
        runs_.push_back(std::move(run));
      }
    }
  }

  const Run& at(std::size_t run) const { return runs_[run]; }

  std::size_t size() const override { return runs_.size(); }
  const std::string& hash(std::size_t run) const override { return runs_[run].hash; }
  std::string in_words(std::size_t run) const override {
    const MixedLengthCase& one = loaded_.file.cases[runs_[run].of_case];
    return fmt::format("{} {}", one.name, one.systems[runs_[run].system].name);
  }
  std::vector<std::string> columns() const override {
    return {"run",   "case",   "lengths",  "context",  "system",          "planner",   "cluster",
            "model", "steps",  "seed",     "version",  "status",          "reason",    "mean_s",
            "low_s", "high_s", "switch_s", "switches", "computed_tokens", "strategies"};
  }
  std::vector<std::string> row(std::size_t run, const std::string& summary) const override {
    const Json json = Json::parse(summary);
    const MixedLengthCase& one = loaded_.file.cases[runs_[run].of_case];
    const MixedLengthSystem& system = one.systems[runs_[run].system];
    const LoadedMixedLengthCase& job = loaded_.cases[runs_[run].of_case];
    std::vector<std::string> cells = {runs_[run].hash,
                                      one.name,
                                      job.lengths.name,
                                      std::to_string(job.job.sequence_length),
                                      system.name,
                                      system.planner.value,
                                      loaded_.file.cluster.value,
                                      loaded_.file.model.value,
                                      std::to_string(loaded_.steps),
                                      std::to_string(loaded_.file.seed),
                                      program_version()};
    const std::vector<std::string> all = columns();
    for (std::size_t c = cells.size(); c < all.size(); ++c) {
      const auto found = json.find(all[c]);
      if (found == json.end()) {
        cells.emplace_back();
      } else if (found->is_array()) {
        std::string text;
        for (const Json& each : *found) {
          text += (text.empty() ? "" : " | ") + each.get<std::string>();
        }
        cells.push_back(std::move(text));
      } else {
        cells.push_back(found->is_string() ? found->get<std::string>() : found->dump());
      }
    }
    return cells;
  }
  bool has_all(std::size_t, const std::string&) const override { return true; }
  /// Drawn from steps.csv, not from runs.csv: run_mixed_length() does it.
  FigureScript figure() const override { return {}; }

  RunSeconds fill(std::size_t index, const std::string& folder,
                  const std::function<void(double)>& on_progress) const override {
    const Run& run = runs_[index];
    RunSeconds seconds;
    const Clock::time_point start = Clock::now();
    MixedLengthSession session(loaded_, run.of_case, run.system);
    seconds.planning = seconds_since(start);
    Json json = {{"schema", kSummarySchema}, {"run", run.hash}};
    const auto& no = session.infeasible();
    json["status"] = no ? "infeasible" : "ok";
    json["reason"] = no ? no->constraint + ": " + no->witness : "";
    write_text_file(folder + "/effective.yaml", config::to_yaml(effective_config(loaded_, run)));
    if (!no) {
      const Clock::time_point begin = Clock::now();
      const std::string steps = run_steps(loaded_, run.of_case, run.system, session, on_progress);
      seconds.evaluation = seconds_since(begin);
      write_text_file(folder + "/" + kSteps, steps);
      json.update(sums_of(steps));
      json["strategies"] = session.strategies();
    }
    if (session.found()) {
      json["search"] = search_lines(*session.found());
      config::Value found = config::Value::map({});
      found.append("strategies", config::to_value(session.found()->set.strategies));
      write_text_file(folder + "/strategies.yaml", config::to_yaml(found));
    }
    write_text_file(folder + "/summary.json",
                    json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    return seconds;
  }

 private:
  const LoadedMixedLength& loaded_;
  std::vector<Run> runs_;
};

/// What lies in the folder of a run, or nothing.
std::string text_if_there(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) ? read_text_file(path) : "";
}

MixedLengthSummary summary_of(const LoadedMixedLength& loaded, const Run& run,
                              const std::string& results) {
  MixedLengthSummary out;
  const MixedLengthCase& one = loaded.file.cases[run.of_case];
  out.of_case = one.name;
  out.lengths = loaded.cases[run.of_case].lengths.name;
  out.context = loaded.cases[run.of_case].job.sequence_length;
  out.system = one.systems[run.system].name;
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

/// The steps of all runs that are there, in their order.
void gather_steps(const MixedLengthRuns& runs, MixedLengthResult& result) {
  std::string all = csv_line(step_columns());
  const std::string header = all;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const std::string text =
        text_if_there(result.results_folder + "/runs/" + runs.hash(run) + "/" + kSteps);
    if (text.size() <= header.size()) continue;
    all.append(text, header.size());
  }
  result.steps = static_cast<int>(std::count(all.begin(), all.end(), '\n')) - 1;
  result.steps_csv = result.results_folder + "/" + kSteps;
  replace_text_file(result.steps_csv, all);
}

}  // namespace

std::string run_steps(const LoadedMixedLength& loaded, std::size_t of_case, std::size_t system,
                      MixedLengthSession& session, const std::function<void(double)>& on_progress) {
  std::string text = csv_line(step_columns());
  const MixedLengthCase& one = loaded.file.cases[of_case];
  const LoadedMixedLengthCase& job = loaded.cases[of_case];
  for (int step = 0; step < loaded.steps; ++step) {
    const std::vector<std::int64_t> lengths = sequences_of(loaded, of_case, step);
    const auto under = std::count_if(lengths.begin(), lengths.end(),
                                     [](std::int64_t length) { return length < kShortSequence; });
    const StepOutcome out = session.run(lengths);
    text += csv_line(
        {one.name, job.lengths.name, std::to_string(job.job.sequence_length),
         one.systems[system].name, std::to_string(step), fmt::format("{:.6f}", out.time.value),
         fmt::format("{:.6f}", out.switching.value), std::to_string(out.switches),
         std::to_string(out.phases), std::to_string(out.strategy), std::to_string(lengths.size()),
         std::to_string(*std::max_element(lengths.begin(), lengths.end())),
         fmt::format("{:.4f}", static_cast<double>(under) / static_cast<double>(lengths.size())),
         std::to_string(out.micro_batches), std::to_string(out.computed_tokens)});
    if (on_progress) on_progress((step + 1.0) / loaded.steps);
  }
  return text;
}

MixedLengthResult run_mixed_length(const LoadedMixedLength& loaded, const std::string& folder,
                                   const RunnerOptions& options,
                                   const std::function<void(const Progress&)>& on_progress) {
  const MixedLengthRuns runs(loaded);
  MixedLengthResult result;
  static_cast<SweepOutcome&>(result) = sweep_runs(runs, loaded.file.name, options, on_progress);
  if (options.dry_run) return result;
  bool all = true;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    result.systems.push_back(summary_of(loaded, runs.at(run), result.results_folder));
    all = all && !result.systems.back().status.empty();
  }
  try {
    gather_steps(runs, result);
  } catch (const std::exception& error) {
    result.problems.emplace_back(error.what());
    return result;
  }
  if (!options.figure || loaded.file.plot.empty() || !all || result.interrupted ||
      result.steps == 0) {
    return result;
  }
  FigureResult figure = draw_figure({folder, loaded.file.plot, loaded.file.published},
                                    result.steps_csv, result.results_folder + "/figures");
  result.figures = std::move(figure.files);
  if (!figure.problem.empty()) result.problems.push_back(std::move(figure.problem));
  return result;
}

}  // namespace orrery::experiments
