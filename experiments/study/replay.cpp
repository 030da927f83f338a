#include "experiments/study/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>

#include "experiments/study/files.h"
#include "experiments/study/replay_session.h"
#include "experiments/study/runner.h"
#include "models/base/hash.h"
#include "models/config/document.h"

namespace orrery::experiments {
namespace {

using Axes = std::vector<std::pair<std::string, std::string>>;

/// Points of the axes that belong to a policy, the last axis fastest; one without axes.
std::vector<Axes> points_of(const ReplayStudy& study, const ReplayPolicy& policy) {
  std::vector<Axes> points = {{}};
  const std::string prefix = policy.shown() + ".";
  for (const auto& [path, values] : study.sweep) {
    if (path.rfind(prefix, 0) != 0) continue;
    std::vector<Axes> longer;
    for (const Axes& point : points) {
      for (const std::string& value : values.value) {
        longer.push_back(point);
        longer.back().emplace_back(path, value);
      }
    }
    points = std::move(longer);
  }
  return points;
}

ReplayPolicy at_point(ReplayPolicy policy, const ReplayStudy& study, const Axes& point) {
  for (const auto& [path, value] : point) {
    const std::string option = path.substr(policy.shown().size() + 1);
    policy.options[option] = value;
    policy.option_positions[option] = study.sweep.at(path).at;
  }
  return policy;
}

template <class E>
const char* text_of(E value) {
  for (const auto& [each, text] : enum_names(E{})) {
    if (each == value) return text;
  }
  return "";
}

config::Value scalars(const std::vector<std::pair<std::string, std::string>>& entries) {
  config::Value map = config::Value::map({});
  for (const auto& [key, value] : entries) map.append(key, config::Value::scalar(value));
  return map;
}

/// Everything that the result of a run depends on.
config::Value effective_config(const ReplayStudy& study, const LoadedReplayCase& loaded,
                               const ReplayRun& run) {
  const ReplayCase& one = loaded.spec;
  config::Value tree = scalars({{"cluster", one.cluster.value}, {"model", one.model.value}});
  tree.append("job", config::to_value(one.job));
  tree.append("trace", config::to_value(one.trace));
  if (one.profile) tree.append("profile", config::Value::scalar(one.profile->value));
  if (one.scale_profile) {
    tree.append("scale_profile", config::Value::scalar(one.scale_profile->value));
  }
  if (one.plan) tree.append("plan", config::Value::scalar(one.plan->value));
  if (one.horizon) tree.append("horizon", config::Value::scalar(config::to_text(*one.horizon)));
  tree.append("expected_interruptions",
              scalars({{"per_second", fmt::format("{}", loaded.interruptions.per_second)},
                       {"source", loaded.interruptions.source}}));
  tree.append("ignore_leaves", config::Value::scalar(one.ignore_leaves ? "true" : "false"));
  tree.append("policy", config::Value::scalar(run.policy.name));
  const auto options = all_options(with_measured_phases(run.policy, loaded.profile));
  tree.append("options", scalars({options.begin(), options.end()}));
  tree.append("seed", config::Value::scalar(std::to_string(run.seed)));
  tree.append("planning_time", config::Value::scalar(text_of(study.planning_time)));
  tree.append("prices", config::Value::scalar(text_of(study.prices)));
  tree.append("background_transfers", config::Value::scalar(text_of(study.background_transfers)));
  tree.append("hashes", scalars({{"version", program_version()},
                                 {"cluster", loaded.hashes.cluster},
                                 {"workload", loaded.hashes.workload},
                                 {"trace", loaded.hashes.trace},
                                 {"plan", loaded.hashes.plan},
                                 {"profile", loaded.hashes.profile}}));
  return tree;
}

class StudyRuns final : public RunSet {
 public:
  StudyRuns(const ReplayStudy& study, const models::Library& library,
            config::Diagnostics& diagnostics)
      : study_(study), columns_(replay_columns(study)) {
    for (const ReplayCase& one : study.cases) {
      config::Diagnostics found;
      cases_.push_back(
          std::make_unique<LoadedReplayCase>(load_replay_case(one, study.folder, library, found)));
      broken_.push_back(!found.empty());
      for (const config::Problem& each : found.problems()) {
        diagnostics.add(each.at, each.what, each.hint);
      }
    }
    std::set<std::string> checked;
    for (ReplayRun& run : expand(study)) add(std::move(run), checked, diagnostics);
  }

  const ReplayRun& at(std::size_t run) const { return runs_[run]; }
  const LoadedReplayCase& of_case(std::size_t index) const { return *cases_[index]; }

  std::size_t size() const override { return runs_.size(); }
  const std::string& hash(std::size_t run) const override { return runs_[run].hash; }
  std::string in_words(std::size_t run) const override {
    const ReplayRun& each = runs_[run];
    std::string text = fmt::format("{} {}", study_.cases[each.of_case].name, each.policy.shown());
    for (const auto& [path, value] : each.axes) {
      text += fmt::format(" {}={}", path.substr(path.find('.') + 1), value);
    }
    return text + fmt::format(" seed {}", each.seed);
  }
  std::vector<std::string> columns() const override { return columns_; }
  std::vector<std::string> row(std::size_t run, const std::string& summary) const override {
    return replay_row(columns_, study_, runs_[run], cases_[runs_[run].of_case]->hashes, summary);
  }
  bool has_all(std::size_t, const std::string&) const override { return true; }
  FigureScript figure() const override { return study_.figure(); }

  /// effective.yaml, profile_entries.txt, points.csv, interruptions.csv and summary.json.
  RunSeconds fill(std::size_t run, const std::string& folder,
                  const std::function<void(double)>& on_progress) const override {
    const ReplayRun& each = runs_[run];
    const LoadedReplayCase& loaded = *cases_[each.of_case];
    const ReplayOutcome outcome = replay_once(
        loaded, each.policy,
        {study_.planning_time, study_.prices, study_.background_transfers, each.seed}, on_progress);
    config::Value config = effective_config(study_, loaded, each);
    config.append("simgrid", scalars(outcome.simgrid));
    write_text_file(folder + "/effective.yaml", config::to_yaml(config));
    std::string entries;
    for (const std::string& line : outcome.profile_entries) entries += line + "\n";
    write_text_file(folder + "/profile_entries.txt", entries);
    write_text_file(folder + "/points.csv", points_csv(outcome.result));
    write_text_file(folder + "/interruptions.csv", interruptions_csv(outcome.result));
    write_text_file(folder + "/summary.json", replay_summary_json(each.hash, outcome));
    return outcome.seconds;
  }

 private:
  void add(ReplayRun run, std::set<std::string>& checked, config::Diagnostics& diagnostics) {
    const LoadedReplayCase& loaded = *cases_[run.of_case];
    if (broken_[run.of_case] || !loaded.traces.absent().empty()) return;
    const std::string options = config::to_flow(config::to_value(run.policy));
    if (checked.insert(fmt::format("{} {}", run.of_case, options)).second) {
      check_policy_options(loaded, run.policy, study_.cases[run.of_case].cluster.at, diagnostics);
    }
    run.hash = content_hash(config::to_yaml(effective_config(study_, loaded, run)));
    runs_.push_back(std::move(run));
  }

  const ReplayStudy& study_;
  std::vector<std::string> columns_;
  std::vector<std::unique_ptr<LoadedReplayCase>> cases_;
  std::vector<bool> broken_;
  std::vector<ReplayRun> runs_;
};

/// Wall clock of the runs that timings.csv knows.
void add_seconds(const StudyRuns& runs, ReplayStudyResult& result) {
  std::set<std::string> wanted;
  for (std::size_t run = 0; run < runs.size(); ++run) wanted.insert(runs.hash(run));
  std::error_code error;
  const std::string path = result.results_folder + "/timings.csv";
  if (!std::filesystem::is_regular_file(path, error)) return;
  for (const std::vector<std::string>& row : parse_csv(read_text_file(path))) {
    if (row.size() != 4 || !wanted.contains(row[0])) continue;
    result.planning_seconds += std::strtod(row[1].c_str(), nullptr);
    result.evaluation_seconds += std::strtod(row[2].c_str(), nullptr);
    result.total_seconds += std::strtod(row[3].c_str(), nullptr);
  }
}

}  // namespace

std::vector<ReplayRun> expand(const ReplayStudy& study) {
  std::vector<ReplayRun> runs;
  for (std::size_t c = 0; c < study.cases.size(); ++c) {
    const auto& own = study.cases[c].policies;
    for (const ReplayPolicy& policy : expand_policies(own.empty() ? study.policies : own)) {
      for (const Axes& point : points_of(study, policy)) {
        for (const std::int64_t seed : study.seeds.value) {
          runs.push_back({c, at_point(policy, study, point), point, seed, ""});
        }
      }
    }
  }
  return runs;
}

std::size_t check_replay_study(const ReplayStudy& study, const models::Library& library,
                               config::Diagnostics& diagnostics) {
  return StudyRuns(study, library, diagnostics).size();
}

ReplayStudyResult run_replay_study(const ReplayStudy& study, const models::Library& library,
                                   const RunnerOptions& options,
                                   const std::function<void(const Progress&)>& on_progress) {
  config::Diagnostics diagnostics;
  const StudyRuns runs(study, library, diagnostics);
  diagnostics.raise();
  ReplayStudyResult result;
  static_cast<SweepOutcome&>(result) = sweep_runs(runs, study.name, options, on_progress);
  for (const std::size_t run : result.positions) result.runs.push_back(runs.at(run));
  for (std::size_t c = 0; c < study.cases.size(); ++c) {
    const LoadedReplayCase& loaded = runs.of_case(c);
    if (!loaded.traces.absent().empty()) {
      result.skipped.push_back(
          fmt::format("case '{}' is skipped: {} is not there (set ORRERY_DATA to the folder with "
                      "the traces of others)",
                      loaded.spec.name, loaded.traces.absent()));
    }
    result.cases.push_back(in_words(loaded));
  }
  add_seconds(runs, result);
  return result;
}

}  // namespace orrery::experiments
