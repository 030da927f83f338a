/// vTrain's multi-node measurements as rows: what the files say, and what is assumed of the
/// cluster and of Megatron-DeepSpeed where they are silent (notes.md).
#pragma once
#include <string>
#include <vector>

#include "experiments/validation/a100/row.h"
#include "models/config/diagnostics.h"

namespace orrery::experiments {

/// Rows of multi_measured.csv, then of multi_predict.csv. Sets are model sizes ("39.1B"), and
/// "TP 16" for tensor parallelism across nodes.
///
/// Fitted on: measured rows whose number in the source is a multiple of four, without those of
/// "TP 16". The rule was stated before any error was looked at.
std::vector<A100Row> read_vtrain(const std::string& folder, config::Diagnostics& diagnostics);

/// Measured rows that the data's README calls suspect. They count like all others.
bool is_suspect_vtrain(const std::string& id);

}  // namespace orrery::experiments
