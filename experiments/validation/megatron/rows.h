/// Megatron's published runs on Selene as rows: Table 1 of SC'21 and the runs of the paper on
/// activation recomputation, with the FLOPs that turn times into TFLOP/s and MFU.
#pragma once
#include <string>
#include <vector>

#include "experiments/validation/a100/row.h"
#include "experiments/validation/a100/simulate.h"
#include "experiments/validation/common/errors.h"
#include "models/config/diagnostics.h"

namespace orrery::experiments {

/// Rows of sc21_table1.csv, recompute_table5.csv and predict_these.csv; sets "SC'21" and
/// "recompute". The measured time is the printed one, else the one that follows from the printed
/// throughput or MFU.
///
/// Fitted on: the rows of the two tables but every third one of each, which are scored, as the data
/// withholds every third of its rows. The rule was stated before any error was looked at.
std::vector<A100Row> read_megatron(const std::string& folder, config::Diagnostics& diagnostics);

/// FLOPs of an iteration with the recomputed forward pass: 96 B s l h^2 (1 + s/(6h) + V/(16 l h))
/// [Narayanan et al. 2021, Eq. 3].
Flops equation_3(const A100Row& row);

/// FLOPs of an iteration without recomputation: 72 B s l h^2 (1 + s/(6h) + V/(12 l h))
/// [Korthikanti et al. 2022, Appendix A].
Flops model_flops_of(const A100Row& row);

/// Percentage of the peak of all GPUs (312 TFLOP/s each) that `flops` in `time` are.
double percent_of_peak(Flops flops, Seconds time, int gpus);

/// Metric "achieved_tflops_per_gpu" of SC'21's rows (Eq. 3) and "mfu_percent" of the others, with
/// the printed values where the files have them.
std::vector<ValidationRow> megatron_metrics(const std::vector<A100Row>& rows,
                                            const std::vector<A100Prediction>& predictions,
                                            const std::string& folder);

}  // namespace orrery::experiments
