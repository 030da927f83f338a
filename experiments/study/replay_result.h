/// What a replayed run leaves behind: summary.json, points.csv, interruptions.csv, its row of
/// runs.csv.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/replay_file.h"
#include "experiments/study/run_set.h"
#include "models/interfaces/evaluator.h"
#include "sim/replay/replay.h"

namespace orrery::experiments {

/// What a policy asked for, in counts that do not depend on the clock.
struct ReplayWork {
  std::int64_t searches = 0;   ///< Of planners.
  std::int64_t simulated = 0;  ///< Iterations that were really simulated.
  std::int64_t asked = 0;      ///< Iteration times that were asked for.
};

struct ReplayOutcome {
  std::optional<models::Infeasible> infeasible;  ///< Why the policy cannot run here.
  sim::ReplayResult result;                      ///< Meaningful without `infeasible`.
  ReplayWork work;
  RunSeconds seconds;
  std::vector<std::pair<std::string, std::string>> simgrid;  ///< Version and options.
  std::vector<std::string> profile_entries;  ///< As RunOutcome's, and measured phases.
};

/// One run of a study.
struct ReplayRun {
  std::size_t of_case = 0;
  ReplayPolicy policy;                                    ///< With the values of the axes.
  std::vector<std::pair<std::string, std::string>> axes;  ///< (POLICY.OPTION, value).
  std::int64_t seed = 0;
  std::string hash;
};

/// Content hashes of what a case names.
struct CaseHashes {
  std::string cluster;
  std::string workload;
  std::string trace;  ///< Of the file, or of the generator's settings.
  std::string plan;
  std::string profile;
};

std::string replay_summary_json(const std::string& hash, const ReplayOutcome& outcome);

/// Curves over time, for figures: a row for each ReplayPoint, with the tokens that count so far.
std::string points_csv(const sim::ReplayResult& result);
std::string interruptions_csv(const sim::ReplayResult& result);

/// Columns of runs.csv: inputs with an own column for each axis, then results.
std::vector<std::string> replay_columns(const ReplayStudy& study);
/// Cells by column; `summary` is the text of summary.json.
std::vector<std::string> replay_row(const std::vector<std::string>& columns,
                                    const ReplayStudy& study, const ReplayRun& run,
                                    const CaseHashes& hashes, const std::string& summary);

}  // namespace orrery::experiments
