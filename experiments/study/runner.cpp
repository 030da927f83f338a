#include "experiments/study/runner.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <sstream>
#include <system_error>

#include "experiments/study/execute.h"
#include "experiments/study/files.h"
#include "experiments/study/result.h"
#include "models/ir/perfetto.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

struct ManifestRun {
  PlannedRun planned;
  RunIdentity identity;
};

/// Clusters and models that the manifest names, in `run` or on an axis, when no run could be read.
void check_names(const Manifest& manifest, const models::Library& library,
                 config::Diagnostics& diagnostics) {
  const auto check = [&](const std::string& key, const config::Value& name) {
    if (!name.is_scalar()) return;
    if (key == "cluster") models::load_cluster(name.text, library, name.at, diagnostics);
    if (key == "model") models::load_model(name.text, library, name.at, diagnostics);
  };
  for (const config::Value::Entry& entry : manifest.run.entries) check(entry.key, entry.value);
  for (const auto& [path, values] : manifest.sweep) {
    for (const config::Value& value : values.value) check(path, value);
  }
  for (const auto& one : manifest.cases) {
    for (const auto& [path, value] : one.value) check(path, value);
  }
}

/// All runs with their identities, as far as they have no problems.
std::vector<ManifestRun> load_runs(const Manifest& manifest, const models::Library& library,
                                   config::Diagnostics& diagnostics) {
  std::vector<ManifestRun> runs;
  for (PlannedRun& planned : expand(manifest, diagnostics)) {
    runs.push_back({std::move(planned), {}});
  }
  if (runs.empty()) check_names(manifest, library, diagnostics);
  std::set<std::string> seen;
  for (ManifestRun& run : runs) {
    config::Diagnostics found;
    const LoadedRun loaded = load_run(run.planned.spec, manifest.folder, library, found);
    for (const config::Problem& problem : found.problems()) {
      if (seen.insert(to_string(problem)).second) {
        diagnostics.add(problem.at, problem.what, problem.hint);
      }
    }
    if (found.empty()) run.identity = identify(run.planned, loaded);
  }
  return runs;
}

/// As load_runs; throws ConfigError.
std::vector<ManifestRun> good_runs(const Manifest& manifest, const models::Library& library) {
  config::Diagnostics diagnostics;
  std::vector<ManifestRun> runs = load_runs(manifest, library, diagnostics);
  diagnostics.raise();
  return runs;
}

std::string describe_run(const PlannedRun& run) {
  const std::string by = run.spec.planner
                             ? run.spec.planner->name.value
                             : fs::path(run.spec.plan ? run.spec.plan->value : "").stem().string();
  return fmt::format("{} {} seed {}", run.spec.model.value, by, run.spec.seed);
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

class ManifestRuns final : public RunSet {
 public:
  ManifestRuns(const Manifest& manifest, const models::Library& library, bool timelines)
      : manifest_(manifest),
        library_(library),
        timelines_(timelines),
        runs_(good_runs(manifest, library)) {
    std::vector<std::string> axes;
    if (!manifest.cases.empty()) axes.emplace_back("case");
    for (const auto& axis : manifest.sweep) axes.push_back(axis.first);
    std::set<std::string> gpus;
    for (const ManifestRun& run : runs_) {
      gpus.insert(run.identity.gpus.begin(), run.identity.gpus.end());
    }
    columns_ = csv_columns(axes, {gpus.begin(), gpus.end()});
  }

  const ManifestRun& at(std::size_t run) const { return runs_[run]; }

  std::size_t size() const override { return runs_.size(); }
  const std::string& hash(std::size_t run) const override { return runs_[run].identity.hash; }
  std::string in_words(std::size_t run) const override { return describe_run(runs_[run].planned); }
  std::vector<std::string> columns() const override { return columns_; }
  std::vector<std::string> row(std::size_t run, const std::string& summary) const override {
    return csv_row(columns_, manifest_, runs_[run].planned, runs_[run].identity, summary);
  }
  /// A simulated plan has a timeline, if asked for.
  bool has_all(std::size_t run, const std::string& folder) const override {
    if (!timelines_ || runs_[run].planned.spec.cost != CostModel::simulator) return true;
    std::error_code error;
    if (!fs::exists(fs::path(folder) / "plan.yaml", error)) return true;  // nothing to draw
    return fs::exists(fs::path(folder) / "timeline.perfetto", error);
  }
  FigureScript figure() const override { return manifest_.figure(); }

  /// effective.yaml, plan.yaml, summary.json, profile_entries.txt, log.txt and timeline.perfetto if
  /// asked for.
  RunSeconds fill(std::size_t run, const std::string& folder,
                  const std::function<void(double)>&) const override {
    const auto& [planned, identity] = runs_[run];
    config::Diagnostics diagnostics;
    LoadedRun loaded = load_run(planned.spec, manifest_.folder, library_, diagnostics);
    diagnostics.raise();
    Session session(std::move(loaded));
    const RunOutcome outcome = session.execute(timelines_, nullptr);
    write_text_file(folder + "/effective.yaml", effective_config(planned.spec, identity, outcome));
    if (outcome.plan) write_text_file(folder + "/plan.yaml", models::dump_plan(*outcome.plan));
    std::string entries;
    for (const std::string& line : outcome.prices) entries += line + "\n";
    write_text_file(folder + "/profile_entries.txt", entries);
    if (timelines_ && !outcome.log.spans.empty()) {
      write_text_file(folder + "/timeline.perfetto", timeline(session.loaded().cluster, outcome));
    }
    std::fflush(nullptr);
    append_text_file(folder + "/log.txt", log_text(outcome));
    write_text_file(folder + "/summary.json", summary_json(identity, outcome));
    return {outcome.planning_seconds, outcome.evaluation_seconds};
  }

 private:
  const Manifest& manifest_;
  const models::Library& library_;
  bool timelines_;
  std::vector<ManifestRun> runs_;
  std::vector<std::string> columns_;
};

}  // namespace

std::size_t check_runs(const Manifest& manifest, const models::Library& library,
                       config::Diagnostics& diagnostics) {
  if (!manifest.run.is_map()) return 0;
  return load_runs(manifest, library, diagnostics).size();
}

SweepResult run_sweep(const Manifest& manifest, const models::Library& library,
                      const RunnerOptions& options,
                      const std::function<void(const Progress&)>& on_progress) {
  const ManifestRuns runs(manifest, library, options.timelines);
  SweepResult result{sweep_runs(runs, manifest.name, options, on_progress), {}};
  for (const std::size_t run : result.positions) {
    result.runs.push_back(runs.at(run).planned);
    result.runs.back().hash = runs.at(run).identity.hash;
  }
  return result;
}

}  // namespace orrery::experiments
