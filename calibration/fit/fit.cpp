#include "calibration/fit/fit.h"

#include <fmt/format.h>

#include "calibration/fit/parts.h"
#include "models/base/check.h"
#include "models/config/csv.h"

namespace orrery::calibration {

const char* FitEntry::held_out() const {
  if (held_out_mean_error < 0) return "";
  return repetitions ? "repetitions" : "measurements";
}

void describe(config::Visitor& v, FitParameter& parameter) {
  v.required("name", parameter.name, "");
  v.required("value", parameter.value, "");
  v.required("unit", parameter.unit, "");
}

void describe(config::Visitor& v, FitEntry& entry) {
  const auto error = [&v](const char* key, double value, const char* doc) {
    std::optional<double> known;
    if (value >= 0) known = value;
    v.optional(key, known, doc);
  };
  v.required("name", entry.name, "");
  v.required("kind", entry.kind, "");
  v.required("samples", entry.samples, "repetitions that were used");
  v.required("disturbed", entry.disturbed, "repetitions that were left out, none of `samples`");
  error("fit_mean_error", entry.fit_mean_error, "relative, on samples of the fit");
  error("fit_max_error", entry.fit_max_error, "");
  error("held_out_mean_error", entry.held_out_mean_error, "on samples that it did not see");
  error("held_out_max_error", entry.held_out_max_error, "");
  std::string held_out = entry.held_out();
  v.required("held_out", held_out,
             "measurements: whole ones; repetitions: of the only one; empty: nothing");
  v.required("parameters", entry.parameters, "");
}

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
