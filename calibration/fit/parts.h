/// The fits by subject; each appends entries, profile entries and warnings to the report. Private
/// to calibration/fit.
#pragma once
#include "calibration/fit/samples.h"

namespace orrery::calibration {

/// Blocks by device type and pass: BlockTime and PassOverhead; passes with recomputation as a
/// check.
void fit_blocks(const FitContext& context);
/// Matrix products by device type and dtype: EfficiencyCurve. Copies: a bandwidth to compare the
/// cluster file with. Optimizer steps: OptimizerTime.
void fit_compute(const FitContext& context);
/// Checkpoints by location: StorageTime.
void fit_storage(const FitContext& context);
/// Kept bytes by device type: MemoryOverhead.
void fit_memory(const FitContext& context);
/// Messages by link class: LinkSegments; both directions at once as a check. Then collectives by
/// (kind, link class, ranks): CollectiveFactor over the ring's closed form on these links.
void fit_links(const FitContext& context);

}  // namespace orrery::calibration
