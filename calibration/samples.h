/// Sample files: a MeasurementSet as CSV, one row for each repetition, after `# key: value` lines
/// that say what it was taken on. A file grows while it is measured: whatever ends the process, its
/// whole rows can be read again, and a fit starts from them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "models/config/diagnostics.h"
#include "models/ir/measurement.h"

namespace orrery::calibration {

/// Header lines and the row of column names. Line breaks in the set's texts become blanks.
std::string samples_header(const ir::MeasurementSet& set);
/// One row with its line break. Line breaks in names become blanks. Cells of columns that do not
/// concern the row's kind are empty.
std::string sample_row(const ir::Measurement& sample);
/// The whole file.
std::string samples_csv(const ir::MeasurementSet& set);

/// What could be read of a file.
struct SampleFile {
  ir::MeasurementSet set;
  /// The last row has no line break: the process was killed while it wrote. The row is not in the
  /// set.
  bool torn = false;
};
/// Reads samples_csv() back, and files that write defaults (0, none) where a column does not
/// concern a row's kind; `name` is the file's name in positions. Unknown, double and missing
/// header lines and columns, rows of another length and cells that cannot be read are problems at
/// their line and column.
SampleFile parse_samples(std::string_view text, const std::string& name,
                         config::Diagnostics& diagnostics);
/// The same for a file.
SampleFile read_samples(const std::string& path, config::Diagnostics& diagnostics);

}  // namespace orrery::calibration
