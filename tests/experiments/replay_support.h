/// A tiny replay study: two nodes of two GPUs, a small model, traces of half an hour.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "experiments/study/replay_ranking.h"
#include "tests/experiments/support.h"

namespace orrery::experiments::support {

inline constexpr const char* kReplayCluster =
    "schema: orrery/cluster/1\n"
    "name: quad\n"
    "nodes:\n"
    "  - name: a\n"
    "    count: 2\n"
    "    gpus: {type: A100-80GB, count: 2}\n"
    "    domains: [{link: nvlink3}]\n"
    "    pcie: [{link: pcie4-x16}]\n"
    "    nics: [{link: ethernet-1GBps, count: 1}]\n"
    "    nvme: {read: 3 GB/s, write: 2 GB/s, capacity: 1 TB}\n"
    "    host_memory: {capacity: 256 GiB, bandwidth: 100 GB/s}\n"
    "storage: {bandwidth: 2 GB/s, scope: shared, latency: 10 ms}\n";

/// Spot nodes with lives of minutes.
inline constexpr const char* kGenerator =
    "schema: orrery/trace_generator/1\n"
    "name: restless\n"
    "source: test\n"
    "spot:\n"
    "  - {gpu_type: \"*\", leaves_per_hour: 4, away: 5 min, notice: 0 s, start: 1, source: test}\n";

/// Two policies x two seeds, and an axis of two values on one of them: six runs.
inline constexpr const char* kStudy =
    "schema: orrery/study/1\n"
    "name: tests/replay\n"
    "command: replay\n"
    "axes:\n"
    "  case:\n"
    "    - name: quad\n"
    "      cluster: quad.yaml\n"
    "      model: gpt3_125m\n"
    "      job: {global_batch: 16, sequence_length: 512}\n"
    "      trace: {generator: restless.yaml}\n"
    "      horizon: 30 min\n"
    "  policy: [checkpoint_restart, {name: checkpoint_restart, label: nvme, options: {location: "
    "nvme}}]\n"
    "  nvme.interval: [60, 300]\n"
    "seeds: [1, 2]\n";

struct ReplayExperiment : ExperimentFolder {
  explicit ReplayExperiment(const std::string& study = kStudy) {
    write_text_file(folder / "manifest.yaml", study);
    write_text_file(folder / "quad.yaml", kReplayCluster);
    write_text_file(folder / "restless.yaml", kGenerator);
  }
  Study load() const {
    config::Diagnostics diagnostics;
    Study study = load_study(folder / "manifest.yaml", diagnostics);
    diagnostics.raise();
    return study;
  }
  StudyResult run(const RunnerOptions& options,
                  const std::function<void(const Progress&)>& on_progress = {},
                  const Cancellation& cancellation = {}) const {
    return run_study(
        load(), library(), options,
        {.on_progress = on_progress, .on_note = {}, .on_line = {}, .cancellation = cancellation});
  }
  /// What is wrong with the study, one problem a line.
  std::string problems() const {
    config::Diagnostics diagnostics;
    const Study study = load_study(folder / "manifest.yaml", diagnostics);
    if (diagnostics.empty()) check_study(study, library(), diagnostics);
    std::string text;
    for (const config::Problem& problem : diagnostics.problems()) text += to_string(problem) + "\n";
    return text;
  }
  std::string results() const { return folder / "results/tests/replay"; }
  std::vector<CsvRow> rows() const { return read_csv_rows(results() + "/runs.csv"); }
};

}  // namespace orrery::experiments::support
