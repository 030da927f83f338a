/// Fits: raw measurements of a machine in, a profile out, with the error of every entry on samples
/// that its fit did not see.
///
/// All fits minimize Huber's loss of the relative error, so that short and long times count alike
/// and a few gross outliers count little [Huber 1964, Robust Estimation of a Location Parameter].
/// Repetitions of one measurement are first reduced to their median. Whole measurements are held
/// out, so that the held-out error tells how well the form predicts a size, a shape or a group that
/// was not measured. Where an entry has one x there is no form to judge: its fit is the median, and
/// its repetitions are held out in five turns, every fifth in each, against the median of the
/// others. Disturbed samples are left out and counted; what could not be fitted or fits badly is a
/// warning, never dropped silently.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/config/visitor.h"
#include "models/ir/measurement.h"
#include "models/ir/profile.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"

namespace orrery::calibration {

/// Bytes that the model of memory counts for a measurement of kind `memory`; nothing where it
/// concerns another model, length or dtype.
using MemoryCount = std::function<std::optional<Bytes>(const ir::Measurement&)>;
/// By models::segment_memory, for as many copies of the workload's first block of the kind as were
/// measured: activations, and for the head its logits, which live between its passes. Copies both
/// arguments.
MemoryCount count_kept(const models::Workload& workload, const models::Job& job);

struct FitOptions {
  std::string profile_name = "calibrated";
  /// Share of the distinct measurements of an entry that are kept from its fit, in [0, 1).
  double held_out_share = 0.25;
  std::uint64_t seed = 1;  ///< Seed of the choice of what is held out.
  /// Mean held-out (or, without one, fit) error above which an entry is reported as a warning.
  double warn_error = 0.15;
  /// Declared peak by device type and dtype: what efficiencies are shares of. Without one there is
  /// no efficiency curve.
  std::map<std::pair<std::string, ir::Dtype>, FlopsPerSecond> peaks;
  /// Without it memory is not fitted.
  MemoryCount counted_memory;
};

/// One parameter of a fit, for tables: "latency" 12.5 "us".
struct FitParameter {
  std::string name;
  double value = 0;
  std::string unit;
};

/// Median of the repetitions of one measurement, and what the fit predicts; for an entry with
/// `repetitions`, a single repetition.
struct FitPoint {
  double x = 0;         ///< In FitEntry::x_unit.
  double measured = 0;  ///< In FitEntry::y_unit, as the next two.
  double fitted = 0;    ///< By the fit that the sample judges: if held out, by one without it.
  double curve = 0;     ///< By the fit on all samples: what the profile says.
  bool held_out = false;
};

/// Errors are |fitted - measured| / measured; negative where there is no such sample, and that of
/// the fit also where it is the median of all that was measured: it would be 0 and say nothing.
struct FitEntry {
  std::string name;  ///< "cpu transformer forward fp32 tp 1 micro-batch 2 sequence 64".
  std::string kind;  ///< link, block, gemm, memory, optimizer, storage, collective, overhead.
  std::int64_t samples = 0;    ///< Repetitions used, held out ones among them.
  std::int64_t disturbed = 0;  ///< Repetitions left out because another process had the core.
  std::vector<FitParameter> parameters;
  double fit_mean_error = -1;
  double fit_max_error = -1;
  double held_out_mean_error = -1;
  double held_out_max_error = -1;
  /// What is held out are repetitions of the one measurement there is, not whole measurements: the
  /// error is their spread.
  bool repetitions = false;
  /// "repetitions" or "measurements", as said above; "": nothing is held out.
  const char* held_out() const;
  std::string x_name;
  std::string x_unit;
  std::string y_name;
  std::string y_unit;
  std::vector<FitPoint> points;
};

struct FitReport {
  ir::Profile profile;
  std::vector<FitEntry> entries;
  std::vector<std::string> warnings;  ///< One line each, in the order of the entries.
};

/// Without the points; errors that there are not are absent.
void describe(config::Visitor& v, FitParameter& parameter);
void describe(config::Visitor& v, FitEntry& entry);

/// Fits everything that the measurements allow. Deterministic: same measurements and options, same
/// report. Entries without a usable sample appear as warnings. A machine without measurements of
/// one kind gets no entry of that kind, and the cost models fall back to the cluster file.
FitReport fit(const ir::MeasurementSet& measured, const FitOptions& options = {});

/// `report`'s points as CSV, one row each: entry, kind, x_name, x, x_unit, y_name, measured,
/// fitted, curve, y_unit, held_out (0 or 1), repetition (0 or 1: a single repetition, of an entry
/// with one x). What calibration/plot_fits.py draws.
std::string points_csv(const FitReport& report);

}  // namespace orrery::calibration
