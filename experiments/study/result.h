/// What a run leaves behind: its identity, summary.json, its row of runs.csv, the SQLite index.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/execute.h"
#include "experiments/study/manifest.h"
#include "experiments/study/runner.h"

namespace orrery::experiments {

inline constexpr const char* kSummarySchema = "orrery/summary/1";

/// Everything that a result depends on, as hashes; names the run's folder.
struct RunIdentity {
  std::string hash;
  std::string cluster_hash;
  std::string workload_hash;
  std::vector<std::string> gpus;  ///< Types of the cluster.
};

/// Hash of the effective config, the contents of cluster, workload, plan and profile, and the
/// program's version.
RunIdentity identify(const PlannedRun& run, const LoadedRun& loaded);

/// Effective config: every field of the spec, defaults included, version, content hashes, SimGrid's
/// settings.
std::string effective_config(const RunSpec& spec, const RunIdentity& identity,
                             const RunOutcome& outcome);

/// summary.json of a run that came to a result.
std::string summary_json(const RunIdentity& identity, const RunOutcome& outcome);
/// summary.json of a run that did not; `hash` names the run.
std::string failure_json(const std::string& hash, const std::string& reason);
/// False for a text that is damaged or tells of another run than `hash`.
bool is_summary_of(const std::string& text, const std::string& hash);
/// Search notes, memory verdict and busiest links for people.
std::string log_text(const RunOutcome& outcome);

/// Columns of runs.csv: inputs, then results, then memory for each of `gpus`. `axes` are the paths
/// of the sweep; those that the fixed columns show are not repeated.
std::vector<std::string> csv_columns(const std::vector<std::string>& axes,
                                     const std::vector<std::string>& gpus);

/// Cells by column. `summary` is the text of summary.json.
std::vector<std::string> csv_row(const std::vector<std::string>& columns, const Manifest& manifest,
                                 const PlannedRun& run, const RunIdentity& identity,
                                 const std::string& summary);

/// Writes an SQLite file with the table `runs`: the columns of runs.csv, numbers as numbers.
/// Atomic.
void write_index(const std::string& path, const std::vector<std::string>& columns,
                 const std::vector<std::vector<std::string>>& rows);

}  // namespace orrery::experiments
