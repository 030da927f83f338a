/// The fits by what they are about; each appends entries, profile entries and warnings to the
/// report. Private to calibration/fit.
#pragma once
#include "calibration/fit/fit.h"

namespace orrery::calibration {

/// Messages by link class: LinkSegments; both ways at once as a check.
void fit_links(const ir::MeasurementSet& measured, const FitOptions& options, FitReport& report);
/// Collectives by (kind, link class, ranks): CollectiveFactor over the ring's closed form on the
/// links that fit_links() has put into the report.
void fit_collectives(const ir::MeasurementSet& measured, const FitOptions& options,
                     FitReport& report);
/// Blocks by device type and pass: BlockTime and PassOverhead; passes with recomputation as a
/// check.
void fit_blocks(const ir::MeasurementSet& measured, const FitOptions& options, FitReport& report);
/// Matrix products by device type and dtype: EfficiencyCurve. Copies: a bandwidth to compare the
/// cluster file with.
void fit_compute(const ir::MeasurementSet& measured, const FitOptions& options, FitReport& report);
/// Optimizer steps and checkpoints: OptimizerTime, StorageTime.
void fit_lines(const ir::MeasurementSet& measured, const FitOptions& options, FitReport& report);
/// Kept bytes by device type: MemoryOverhead.
void fit_memory(const ir::MeasurementSet& measured, const FitOptions& options, FitReport& report);

}  // namespace orrery::calibration
