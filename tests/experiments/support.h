/// Folders, tiny manifests and sweeps for the tests of experiments/study.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "experiments/study/files.h"
#include "experiments/study/run_spec.h"
#include "experiments/study/run_study.h"
#include "models/base/hash.h"
#include "models/config/document.h"
#include "tests/experiments/library.h"

namespace orrery::experiments::support {

namespace fs = std::filesystem;

/// An empty folder that goes with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (fs::temp_directory_path() / "orrery-experiments-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

inline constexpr const char* kCluster =
    "schema: orrery/cluster/1\n"
    "name: pair\n"
    "nodes:\n"
    "  - name: a\n"
    "    gpus: {type: A100-80GB, count: 2}\n"
    "    domains: [{link: nvlink3}]\n"
    "    nics: [{link: ethernet-1GBps, count: 1}]\n";

inline constexpr const char* kPlan =
    "schema: orrery/plan/1\n"
    "pipelines:\n"
    "  - micro_batches: 4\n"
    "    micro_batch_size: 1\n"
    "    stages:\n"
    "      - segments: [{blocks: 0-6, groups: [{devices: [0]}]}]\n"
    "      - segments: [{blocks: 7-13, groups: [{devices: [1]}]}]\n";

/// Eight runs: two sequence lengths x two jitters x two seeds on two GPUs.
inline constexpr const char* kManifest =
    "schema: orrery/study/1\n"
    "name: tests/pair\n"
    "command: plan\n"
    "settings:\n"
    "  cluster: pair.yaml\n"
    "  model: gpt3_125m\n"
    "  plan: plan.yaml\n"
    "  job: {global_batch: 4, sequence_length: 512}\n"
    "axes:\n"
    "  job.sequence_length: [512, 1024]\n"
    "  simulation.jitter: [0, 0.1]\n"
    "seeds: [1, 2]\n";

/// `text` with the first `from` replaced.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "'" << from << "' is not in the text";
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// A folder with inputs of an experiment, and where its results go.
struct ExperimentFolder {
  RunnerOptions options(int workers = 1) const {
    RunnerOptions options;
    options.results_root = folder / "results";
    options.workers = workers;
    return options;
  }
  RunnerOptions dry_run() const {
    RunnerOptions dry = options();
    dry.dry_run = true;
    return dry;
  }
  RunnerOptions shard(int index, int count) const {
    RunnerOptions part = options();
    part.shard_index = index;
    part.shard_count = count;
    return part;
  }

  TempFolder folder;
};

/// A run of a study of plans before anything is loaded.
struct PlannedRun {
  RunSpec spec;
  std::vector<std::pair<std::string, std::string>> axes;
  std::string hash;  ///< Of the settings.
};

/// Throws ConfigError.
inline std::vector<PlannedRun> planned_runs(const Study& study) {
  config::Diagnostics diagnostics;
  std::vector<PlannedRun> runs;
  const auto check = [](const RunSpec&, config::Diagnostics&) {};
  for (auto& [point, spec] :
       read_settings<RunSpec>(expand(study, diagnostics), diagnostics, check)) {
    runs.push_back({spec, point.axes, content_hash(config::dump(spec))});
  }
  diagnostics.raise();
  return runs;
}

/// A folder with manifest.yaml, pair.yaml and plan.yaml.
struct Experiment : ExperimentFolder {
  explicit Experiment(const std::string& manifest = kManifest) {
    write_text_file(folder / "manifest.yaml", manifest);
    write_text_file(folder / "pair.yaml", kCluster);
    write_text_file(folder / "plan.yaml", kPlan);
  }
  Study load() const {
    config::Diagnostics diagnostics;
    Study study = load_study(folder / "manifest.yaml", diagnostics);
    diagnostics.raise();
    return study;
  }
  /// The runs of the manifest. Throws ConfigError.
  std::vector<PlannedRun> expanded() const { return planned_runs(load()); }
  StudyResult sweep(const RunnerOptions& options,
                    const std::function<void(const Progress&)>& on_progress = {},
                    const Cancellation& cancellation = {}) const {
    return run_study(
        load(), library(), options,
        {.on_progress = on_progress, .on_note = {}, .on_line = {}, .cancellation = cancellation});
  }
  std::string results() const { return folder / "results/tests/pair"; }
  std::string csv() const { return read_text_file(results() + "/runs.csv"); }
  std::vector<CsvRow> rows() const { return read_csv_rows(results() + "/runs.csv"); }
};

/// Names of the entries of a folder, sorted; empty if there is no such folder.
inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// All files below a folder with their content, but for measured times.
inline std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == "timings.csv") continue;
    files[fs::relative(entry.path(), folder).string()] = read_text_file(entry.path().string());
  }
  return files;
}

}  // namespace orrery::experiments::support
