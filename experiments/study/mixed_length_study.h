/// Mixed-length experiments as sets of runs: every system of every case in a forked worker,
/// resumable (sweep.h). A run is all steps of one system.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "experiments/study/mixed_length.h"
#include "experiments/study/sweep.h"

namespace orrery::experiments {

/// What a finished run says about itself.
struct MixedLengthSummary {
  std::string of_case;
  std::string lengths;
  std::int64_t context = 0;
  std::string system;
  std::string status;  ///< ok, infeasible or failed; "": not run yet.
  std::string reason;
  Seconds mean;  ///< Of a step.
  Seconds low;   ///< 10 % of the steps are below.
  Seconds high;  ///< 90 % of the steps are below.
  Seconds switching;
  double switches = 0;                  ///< In a step.
  double computed_tokens = 0;           ///< In a step.
  std::vector<std::string> strategies;  ///< In words.
  /// Of the strategies if they were searched, else nothing.
  std::vector<std::string> search;
};

struct MixedLengthResult : SweepOutcome {
  std::string steps_csv;  ///< One row a step, of all runs that are there.
  int steps = 0;          ///< Rows in it.
  std::vector<MixedLengthSummary> systems;
};

/// Runs what is missing below the results folder. Each run leaves steps.csv, summary.json, its
/// effective config and, where they were searched, strategies.yaml; runs.csv has a row for each
/// run, steps.csv of the results folder one for each step. The figure is drawn from steps.csv when
/// all runs are there. `folder` is that of the file. No FlowEngine may exist in this process.
MixedLengthResult run_mixed_length(const LoadedMixedLength& loaded, const std::string& folder,
                                   const RunnerOptions& options,
                                   const std::function<void(const Progress&)>& on_progress);

/// steps.csv of one run in this process, header included; with `on_progress` the share of steps.
std::string run_steps(const LoadedMixedLength& loaded, std::size_t of_case, std::size_t system,
                      MixedLengthSession& session, const std::function<void(double)>& on_progress);

}  // namespace orrery::experiments
