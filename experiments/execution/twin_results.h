/// Results of a twin: its runs, their errors, and the CSV files that figures and docs/accuracy.md
/// are made from.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibration/compare/errors.h"
#include "calibration/compare/residuals.h"
#include "experiments/execution/compare.h"
#include "experiments/execution/execute.h"
#include "models/config/visitor.h"
#include "models/ir/profile.h"

namespace orrery::experiments {

/// One run of a twin.
struct TwinRun {
  std::string name;
  std::string source;  ///< Planner, or "file".
  std::string plan;    ///< File; "" if there is no plan.
  std::string job;     ///< File.
  bool fit = false;
  std::string seen;     ///< Why it is no unseen run (TwinPlan::seen); "": it is one.
  std::string policy;   ///< Of a recovery; "": none.
  KillRequest kill;     ///< Of a recovery.
  std::string skipped;  ///< Why it is not executed; "": it is.
  std::string folder;   ///< Of its results.
  bool finished = false;
};

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

  const char* set() const;         ///< fit, seen, predict, recovery or recovery_fit.
  double disturbed_share() const;  ///< Of its compute ops.
  /// With and without what whole runs taught; null: none.
  const calibration::Comparison* predicted() const;
  const calibration::Comparison* by_benchmarks() const;
};
void describe(config::Visitor& v, TwinResult& result);

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
  std::string folder;              ///< Of the results.
  std::vector<std::string> files;  ///< Figures.
  int failed = 0;                  ///< Runs whose execution failed.
};
void describe(config::Visitor& v, TwinSummary& summary);
/// 0, or 1 where a run failed.
int exit_status(const TwinSummary& summary);

/// A line of the error table, and how far the machine took part in it.
struct TwinErrorLine {
  calibration::ErrorSummary errors;
  double disturbed = 0;  ///< Share of the compute ops of its runs.
};
void describe(config::Visitor& v, TwinErrorLine& line);
/// By set and metric; a program that ran twice counts once.
std::vector<TwinErrorLine> error_lines(const TwinSummary& summary);

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

/// The phases of a recovery, and their total.
std::vector<ComparedPhase> with_total(std::vector<ComparedPhase> phases);

}  // namespace orrery::experiments
