/// What `orrery calibrate` prints and writes about its fits. Private to the calibrate command.
#pragma once
#include <string>

#include "calibration/fit/fit.h"
#include "models/ir/measurement.h"

namespace orrery::tools {

/// Where from, a row for each kind of entry, the entries that fit worst, warnings.
std::string calibration_text(const ir::MeasurementSet& measured,
                             const calibration::FitReport& report);
/// The same as one JSON document, with every entry.
std::string calibration_json(const ir::MeasurementSet& measured,
                             const calibration::FitReport& report);
/// One row for each entry: name, kind, samples, disturbed, errors, parameters.
std::string entries_csv(const calibration::FitReport& report);

}  // namespace orrery::tools
