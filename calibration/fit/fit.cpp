#include "calibration/fit/fit.h"

#include <fmt/format.h>

#include "calibration/fit/parts.h"
#include "models/base/check.h"
#include "models/config/csv.h"

namespace orrery::calibration {
FitReport fit(const ir::MeasurementSet& measured, const FitOptions& options) {
  ORRERY_CHECK(options.held_out_share >= 0 && options.held_out_share < 1, "held-out share {}",
               options.held_out_share);
  FitReport report;
  report.profile.name = options.profile_name;
  const FitContext context{measured, options, report};
  fit_blocks(context);
  fit_compute(context);
  fit_storage(context);
  fit_memory(context);
  fit_links(context);
  return report;
}

std::string points_csv(const FitReport& report) {
  std::string text =
      "entry,kind,x_name,x,x_unit,y_name,measured,fitted,curve,y_unit,held_out,repetition\n";
  for (const FitEntry& entry : report.entries) {
    for (const FitPoint& point : entry.points) {
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", config::csv_cell(entry.name),
                          entry.kind, entry.x_name, point.x, entry.x_unit, entry.y_name,
                          point.measured, point.fitted, point.curve, entry.y_unit,
                          point.held_out ? 1 : 0, entry.repetitions ? 1 : 0);
    }
  }
  return text;
}

}  // namespace orrery::calibration
