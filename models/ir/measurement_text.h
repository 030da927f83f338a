/// Measurements as cells of text, one for each field, in a fixed order: what sample files hold
/// (calibration/samples.h) and what rank processes tell each other (executor/bench). Numbers are
/// written so that they read back equal.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "models/ir/measurement.h"
#include "models/ir/names.h"

namespace orrery::ir {

EnumNames<MeasurementKind> enum_names(MeasurementKind);

/// Names of the fields, in the order of the cells: "kind", "device_type", ...
const std::vector<std::string>& measurement_columns();

/// One cell for each column; of enums the names.
std::vector<std::string> to_cells(const Measurement& measurement);

/// What is wrong with a cell.
struct CellProblem {
  std::size_t column = 0;  ///< Index into measurement_columns().
  std::string what;        ///< "'x' is no number".
};
/// Reads cells back into `out`; none when all could be read. There must be one for each column.
/// Numbers must be finite, and times, sizes and counts not negative.
std::optional<CellProblem> from_cells(const std::vector<std::string>& cells, Measurement& out);

/// What was measured, without the result: equal for repetitions of one measurement. Of memory the
/// bytes are the result.
std::string measurement_key(const Measurement& measurement);

}  // namespace orrery::ir
