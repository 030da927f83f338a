/// A run that was executed against the simulation of the same programs.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calibration/compare/checkpoints.h"
#include "calibration/compare/compare.h"
#include "experiments/execution/run_inputs.h"
#include "experiments/study/call.h"
#include "experiments/study/inputs.h"
#include "models/config/diagnostics.h"
#include "models/config/visitor.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"

namespace orrery::experiments {

/// A run that was executed against its simulation.
struct CompareSettings {
  std::string run;  ///< Folder of a run, of one of its generations, or a run.log.
  Text profile;
  Text cluster;
  std::optional<int> warm_up;
  int worst = calibration::CompareOptions{}.worst;
  Text out;
  bool no_figure = false;
};
void describe(config::Visitor& v, CompareSettings& settings);

/// A phase of a recovery.
struct ComparedPhase {
  std::string phase;
  double measured = 0;              ///< Seconds.
  std::optional<double> predicted;  ///< None where the profile says nothing about it.
};
void describe(config::Visitor& v, ComparedPhase& phase);

/// "total": the sum of a recovery's phases, from the failure to the end of the first step after
/// it; predicted where all of them are. None without phases.
std::optional<ComparedPhase> total_of(const std::vector<ComparedPhase>& phases);

/// One generation of a run.
struct GenerationComparison {
  std::int64_t generation = 0;
  ir::Program program;
  ir::RunLog measured;
  ir::RunLog predicted;
  /// Where predicted times come from: those of ops, then those of checkpoints where there are any.
  std::vector<std::string> prices;
  std::optional<calibration::Comparison> comparison;  ///< None: too few steps; `problem` says why.
  std::string problem;
  calibration::CheckpointComparison checkpoints;  ///< Apart from the iteration.
  std::vector<ComparedPhase> phases;              ///< Of the recovery that brought it up.
  std::string phases_problem;                     ///< Why some of them are not predicted.
  double simulated_move = 0;     ///< Seconds of the state transfers in the simulator.
  std::int64_t compute_ops = 0;  ///< Executed, and how many ran over their time.
  std::int64_t disturbed_ops = 0;
  /// What a reader must know: inputs that are not those of the program that ran, and what the
  /// profile does not price.
  std::vector<std::string> notes;
};
void describe(config::Visitor& v, GenerationComparison& generation);

struct CompareResult {
  std::string run;
  std::vector<GenerationComparison> generations;
  /// About all of them: files that are not what the run was given, links that were not there.
  std::vector<std::string> notes;
  std::vector<std::string> files;  ///< That were written, and figures that were not; no result.
};
void describe(config::Visitor& v, CompareResult& result);

/// Reads, simulates and compares; writes comparison.json, timelines and figures into settings.out.
/// Throws ConfigError for bad files, std::runtime_error if a simulation fails.
CompareResult compare(const CompareSettings& settings, const Call& call,
                      config::Diagnostics problems = {});

/// The same without files. Problems go to `diagnostics`; the result is incomplete then. A warm-up
/// that settings ask for must leave steps of every generation.
CompareResult compare_run(const CompareSettings& settings,
                          const calibration::CompareOptions& options,
                          config::Diagnostics& diagnostics);

/// Rows side,rank,device,step,stream,kind,purpose,start_s,end_s,inner_s of the simulated iteration
/// and of the measured step whose length is the median: what tools/scripts/plot_compare.py draws.
std::string timeline_csv(const GenerationComparison& generation, int warm_up);

/// The profile with entries for each GPU type of the cluster that has none: those of "cpu" (a core
/// of the machine that runs the ranks), made longer by the lab's slowdown of the type's first
/// device. Each copy's provenance says so. Without entries for "cpu" nothing changes.
ir::Profile for_cluster(const ir::Profile& profile, const models::Cluster& cluster,
                        const std::map<std::string, double>& lab_slowdowns);

}  // namespace orrery::experiments
