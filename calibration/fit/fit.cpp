#include "calibration/fit/fit.h"

#include <fmt/format.h>

#include "calibration/fit/parts.h"
#include "models/base/check.h"

namespace orrery::calibration {
namespace {

/// A cell of CSV; quoted where it must be.
std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"') quoted += '"';
    quoted += letter;
  }
  return quoted + "\"";
}

}  // namespace

FitReport fit(const ir::MeasurementSet& measured, const FitOptions& options) {
  ORRERY_CHECK(options.held_out_share >= 0 && options.held_out_share < 1, "held-out share {}",
               options.held_out_share);
  FitReport report;
  report.profile.name = options.profile_name;
  fit_blocks(measured, options, report);
  fit_compute(measured, options, report);
  fit_lines(measured, options, report);
  fit_memory(measured, options, report);
  fit_links(measured, options, report);
  fit_collectives(measured, options, report);
  return report;
}

std::string points_csv(const FitReport& report) {
  std::string text =
      "entry,kind,x_name,x,x_unit,y_name,measured,fitted,curve,y_unit,held_out,repetition\n";
  for (const FitEntry& entry : report.entries) {
    for (const FitPoint& point : entry.points) {
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", cell(entry.name), entry.kind,
                          entry.x_name, point.x, entry.x_unit, entry.y_name, point.measured,
                          point.fitted, point.curve, entry.y_unit, point.held_out ? 1 : 0,
                          entry.repetitions ? 1 : 0);
    }
  }
  return text;
}

}  // namespace orrery::calibration
