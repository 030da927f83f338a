#include "tools/commands/calibrate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "experiments/runner/files.h"
#include "models/config/visitor.h"
#include "models/ir/measurement_text.h"
#include "tools/commands/json.h"
#include "tools/commands/output.h"
#include "tools/table.h"

namespace orrery::tools {
namespace {

using calibration::FitEntry;
using calibration::FitReport;

constexpr std::size_t kWorst = 10;
constexpr std::size_t kWarnings = 20;

struct ParameterRecord {
  std::string name;
  double value = 0;
  std::string unit;
};
void describe(config::Visitor& v, ParameterRecord& parameter) {
  v.required("name", parameter.name, "");
  v.required("value", parameter.value, "");
  v.required("unit", parameter.unit, "");
}

struct EntryRecord {
  std::string name;
  std::string kind;
  std::int64_t samples = 0;
  std::int64_t disturbed = 0;
  std::optional<double> fit_mean_error;
  std::optional<double> fit_max_error;
  std::optional<double> held_out_mean_error;
  std::optional<double> held_out_max_error;
  std::vector<ParameterRecord> parameters;
};
void describe(config::Visitor& v, EntryRecord& entry) {
  v.required("name", entry.name, "");
  v.required("kind", entry.kind, "");
  v.required("samples", entry.samples, "repetitions that were used");
  v.required("disturbed", entry.disturbed, "repetitions that were left out, none of `samples`");
  v.optional("fit_mean_error", entry.fit_mean_error, "relative, on samples of the fit");
  v.optional("fit_max_error", entry.fit_max_error, "");
  v.optional("held_out_mean_error", entry.held_out_mean_error, "on samples that it did not see");
  v.optional("held_out_max_error", entry.held_out_max_error, "");
  v.required("parameters", entry.parameters, "");
}

struct CalibrationRecord {
  std::string machine;
  std::string libraries;
  std::string date;
  std::string model;
  std::string backend;
  std::string sampling;
  std::int64_t samples = 0;
  std::int64_t disturbed = 0;
  std::vector<EntryRecord> entries;
  std::vector<std::string> warnings;
};
void describe(config::Visitor& v, CalibrationRecord& record) {
  v.required("machine", record.machine, "");
  v.required("libraries", record.libraries, "");
  v.required("date", record.date, "");
  v.required("model", record.model, "");
  v.required("backend", record.backend, "");
  v.required("sampling", record.sampling, "quick: not for use; empty: in full");
  v.required("samples", record.samples, "all repetitions, disturbed ones too");
  v.required("disturbed", record.disturbed, "of them, and used in no fit");
  v.required("entries", record.entries, "");
  v.required("warnings", record.warnings, "");
}

std::optional<double> known(double error) {
  return error < 0 ? std::nullopt : std::optional(error);
}

std::int64_t disturbed_of(const ir::MeasurementSet& measured) {
  return std::count_if(measured.measurements.begin(), measured.measurements.end(),
                       [](const ir::Measurement& sample) { return sample.disturbed; });
}

std::string quick_text() {
  return "Taken with --quick: a try, not a profile for use; it says so wherever it is used.\n";
}

std::string percent(double error) { return error < 0 ? "-" : grouped(100 * error, 1); }

/// The held-out error, or without one that of the fit.
double error_of(const FitEntry& entry) {
  return entry.held_out_mean_error >= 0 ? entry.held_out_mean_error : entry.fit_mean_error;
}

std::string kinds_table(const FitReport& report) {
  std::vector<std::string> kinds;
  for (const FitEntry& entry : report.entries) {
    if (std::find(kinds.begin(), kinds.end(), entry.kind) == kinds.end()) {
      kinds.push_back(entry.kind);
    }
  }
  Table table;
  table.column("kind").number("entries").number("used").number("disturbed");
  table.number("fit error %").number("held out %").number("worst held out %");
  for (const std::string& kind : kinds) {
    std::int64_t entries = 0, samples = 0, disturbed = 0;
    double fit = 0, held = 0, worst = -1;
    int fits = 0, helds = 0;
    for (const FitEntry& entry : report.entries) {
      if (entry.kind != kind) continue;
      ++entries;
      samples += entry.samples;
      disturbed += entry.disturbed;
      if (entry.fit_mean_error >= 0) {
        fit += entry.fit_mean_error;
        ++fits;
      }
      if (entry.held_out_mean_error >= 0) {
        held += entry.held_out_mean_error;
        ++helds;
      }
      worst = std::max(worst, entry.held_out_max_error);
    }
    table.row({kind, std::to_string(entries), std::to_string(samples), std::to_string(disturbed),
               percent(fits > 0 ? fit / fits : -1), percent(helds > 0 ? held / helds : -1),
               percent(worst)});
  }
  return table.text(2);
}

std::string worst_table(const FitReport& report) {
  std::vector<const FitEntry*> entries;
  for (const FitEntry& entry : report.entries) {
    if (error_of(entry) >= 0) entries.push_back(&entry);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const FitEntry* a, const FitEntry* b) {
    return error_of(*a) > error_of(*b);
  });
  if (entries.size() > kWorst) entries.resize(kWorst);
  Table table;
  table.column("entry").number("used").number("disturbed").number("fit %").number("held out %");
  for (const FitEntry* entry : entries) {
    table.row({entry->name, std::to_string(entry->samples), std::to_string(entry->disturbed),
               percent(entry->fit_mean_error), percent(entry->held_out_mean_error)});
  }
  return table.empty() ? "" : table.text(2);
}

}  // namespace

std::string calibration_text(const ir::MeasurementSet& measured, const FitReport& report) {
  std::string text =
      fmt::format("{}\n{}, {}; blocks of {}\n{}, {} of them disturbed and used in no fit\n",
                  measured.machine, measured.libraries, measured.date, measured.model,
                  counted(measured.measurements.size(), "sample"), disturbed_of(measured));
  if (measured.sampling == ir::kQuickSampling) text += quick_text();
  if (!report.entries.empty()) {
    text += fmt::format("\n{}", section("Fits", kinds_table(report)));
    text += fmt::format("\n{}", section("Worst", worst_table(report)));
  }
  std::string warnings;
  for (std::size_t i = 0; i < std::min(kWarnings, report.warnings.size()); ++i) {
    warnings += fmt::format("  {}\n", report.warnings[i]);
  }
  if (report.warnings.size() > kWarnings) {
    warnings += fmt::format("  and {} more (--json has all)\n", report.warnings.size() - kWarnings);
  }
  if (!warnings.empty()) text += fmt::format("\n{}", section("Warnings", warnings));
  return text;
}

std::string calibration_json(const ir::MeasurementSet& measured, const FitReport& report) {
  CalibrationRecord record{measured.machine,
                           measured.libraries,
                           measured.date,
                           measured.model,
                           measured.backend,
                           measured.sampling,
                           static_cast<std::int64_t>(measured.measurements.size()),
                           disturbed_of(measured),
                           {},
                           report.warnings};
  for (const FitEntry& entry : report.entries) {
    EntryRecord one{entry.name,
                    entry.kind,
                    entry.samples,
                    entry.disturbed,
                    known(entry.fit_mean_error),
                    known(entry.fit_max_error),
                    known(entry.held_out_mean_error),
                    known(entry.held_out_max_error),
                    {}};
    for (const calibration::FitParameter& parameter : entry.parameters) {
      one.parameters.push_back({parameter.name, parameter.value, parameter.unit});
    }
    record.entries.push_back(std::move(one));
  }
  return to_json(record);
}

std::string entries_csv(const FitReport& report) {
  std::string text = experiments::csv_line(
      {"entry", "kind", "samples", "disturbed", "fit_mean_error", "fit_max_error",
       "held_out_mean_error", "held_out_max_error", "parameters"});
  const auto cell = [](double error) {
    return error < 0 ? std::string() : fmt::format("{}", error);
  };
  for (const FitEntry& entry : report.entries) {
    std::string parameters;
    for (const calibration::FitParameter& parameter : entry.parameters) {
      parameters += fmt::format("{}{} = {} {}", parameters.empty() ? "" : "; ", parameter.name,
                                parameter.value, parameter.unit);
    }
    text += experiments::csv_line({entry.name, entry.kind, std::to_string(entry.samples),
                                   std::to_string(entry.disturbed), cell(entry.fit_mean_error),
                                   cell(entry.fit_max_error), cell(entry.held_out_mean_error),
                                   cell(entry.held_out_max_error), parameters});
  }
  return text;
}

}  // namespace orrery::tools
