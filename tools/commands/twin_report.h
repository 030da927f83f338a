/// Results of `orrery twin`: tables, CSV files that figures and docs/accuracy.md are made from.
/// Private to the twin command.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibration/compare/residuals.h"
#include "models/ir/profile.h"
#include "tools/commands/compare_run.h"
#include "tools/commands/twin_steps.h"

namespace orrery::tools {

/// One run with its comparisons, as far as there are any.
struct TwinResult {
  TwinRun run;
  std::string problem;                        ///< Why it has no comparison: skipped, failed.
  std::optional<GenerationComparison> raw;    ///< Predicted from micro-benchmarks alone.
  std::optional<GenerationComparison> final;  ///< And with what whole runs taught.
  std::vector<ComparedPhase> phases;          ///< Of a recovery.
  std::string schedule;
  /// Run of an equal program, by its hash: measured once more, and in no mean. "": none.
  std::string same_as;
};

/// What was fitted on the runs for fitting.
struct TwinParameters {
  calibration::PassFactors factors;
  std::vector<ir::PhaseTime> phases;
};

struct TwinSummary {
  std::string name;
  bool loopback = false;
  TwinParameters parameters;
  std::vector<TwinResult> results;
};

/// Sets TwinResult::same_as of runs of plans whose program ran already: those for fitting and those
/// that were seen count before others, then the manifest's order decides.
void mark_equal_programs(TwinSummary& summary);

/// twin.csv: one row for each run: name, set (fit, seen, predict, recovery, recovery_fit), source,
/// schedule, status, the run with an equal program, seconds predicted and measured of iteration and
/// components, errors (relative).
std::string twin_csv(const TwinSummary& summary);
/// phases.csv: run,set,policy,phase,predicted_s,measured_s,error; after its phases the run's total.
std::string phases_csv(const TwinSummary& summary);
/// errors.csv: experiment,set,metric,rows,mean,median,max,bias,target,published_best,
/// disturbed_share: of the compute ops of the runs in the row, those that took longer than their
/// device allows. A program that ran twice counts once.
std::string twin_errors_csv(const TwinSummary& summary);
/// parameters.csv: name,unit,value,samples,rule.
std::string twin_parameters_csv(const TwinSummary& summary);

std::string twin_text(const TwinSummary& summary);
std::string twin_json(const TwinSummary& summary);

}  // namespace orrery::tools
