/// A run that was executed against the simulation of the same programs. Shared by `orrery compare`
/// and `orrery twin`.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calibration/compare/checkpoints.h"
#include "calibration/compare/compare.h"
#include "calibration/compare/phases.h"
#include "calibration/compare/steps.h"
#include "models/config/diagnostics.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"
#include "tools/commands/run_inputs.h"

namespace orrery::tools {

/// One iteration of a program on a cluster, simulated in a child process: one simulator a process.
struct SimulatedProgram {
  ir::RunLog log;
  std::vector<std::string> prices;  ///< Where times come from: profile entries, rooflines.
};

/// `run` says cluster, workload, job and profile. Throws std::runtime_error if the child fails.
SimulatedProgram simulate_program(const experiments::LoadedRun& run, const ir::Program& program,
                                  const std::vector<sim::Straggler>& stragglers);

/// The profile with entries for each GPU type of the cluster that has none: those of "cpu" (a core
/// of the machine that runs the ranks), made longer by the lab's slowdown of the type's first
/// device. Each copy's provenance says so. Without entries for "cpu" nothing changes.
ir::Profile for_cluster(const ir::Profile& profile, const models::Cluster& cluster,
                        const std::map<std::string, double>& lab_slowdowns);

/// A phase of a recovery.
struct ComparedPhase {
  std::string phase;
  double measured = 0;              ///< Seconds.
  std::optional<double> predicted;  ///< None where the profile says nothing about it.
};

/// "total": the sum of a recovery's phases, from the failure to the end of the first step after
/// it; predicted where all of them are. None without phases.
std::optional<ComparedPhase> total_of(const std::vector<ComparedPhase>& phases);

/// One generation of a run.
struct GenerationComparison {
  std::int64_t generation = 0;
  ir::Program program;
  ir::RunLog measured;
  ir::RunLog predicted;
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

struct RunComparison {
  LoadedInputs inputs;
  std::vector<GenerationComparison> generations;
  std::vector<std::string> notes;  ///< About all of them (compare_notes.h).
};

struct CompareRequest {
  std::string run;      ///< Folder of a run, of one of its generations, or a run.log.
  std::string cluster;  ///< Instead of the run's own; "": none.
  std::string profile;
  calibration::CompareOptions options;
};

/// Reads, simulates and compares. Problems of files go to `diagnostics`; the result is incomplete
/// then. Throws std::runtime_error if a simulation fails.
RunComparison compare_run(const CompareRequest& request, config::Diagnostics& diagnostics);

}  // namespace orrery::tools
