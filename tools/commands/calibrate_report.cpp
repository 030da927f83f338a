#include "tools/commands/calibrate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "experiments/study/files.h"
#include "models/config/visitor.h"
#include "models/ir/measurement_text.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"

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
  std::string held_out;
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
  v.required("held_out", entry.held_out,
             "measurements: whole ones; repetitions: of the only one; empty: nothing");
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

std::string error_percent(double error) { return error < 0 ? "-" : grouped(100 * error, 1); }

/// What the held-out error of an entry is of.
std::string held_out_of(const FitEntry& entry) {
  if (entry.held_out_mean_error < 0) return "";
  return entry.repetitions ? "repetitions" : "measurements";
}

/// Mean of the errors that there are.
class MeanError {
 public:
  void add(double error) {
    if (error < 0) return;
    sum_ += error;
    ++count_;
  }
  double value() const { return count_ > 0 ? sum_ / count_ : -1; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

constexpr const char* kOfRepetitions =
    "repetitions: entries with one measurement, each repetition against the median of others; "
    "their errors are in no other column\n";

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
  table.number("repetitions %");
  for (const std::string& kind : kinds) {
    std::int64_t entries = 0, samples = 0, disturbed = 0;
    double worst = -1;
    MeanError fit, held, repetitions;
    for (const FitEntry& entry : report.entries) {
      if (entry.kind != kind) continue;
      ++entries;
      samples += entry.samples;
      disturbed += entry.disturbed;
      fit.add(entry.fit_mean_error);
      (entry.repetitions ? repetitions : held).add(entry.held_out_mean_error);
      if (!entry.repetitions) worst = std::max(worst, entry.held_out_max_error);
    }
    table.row({kind, std::to_string(entries), std::to_string(samples), std::to_string(disturbed),
               error_percent(fit.value()), error_percent(held.value()), error_percent(worst),
               error_percent(repetitions.value())});
  }
  const bool any = std::any_of(report.entries.begin(), report.entries.end(),
                               [](const FitEntry& entry) { return entry.repetitions; });
  return table.text(2) + (any ? std::string("  ") + kOfRepetitions : std::string());
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
  table.column("of");
  for (const FitEntry* entry : entries) {
    table.row({entry->name, std::to_string(entry->samples), std::to_string(entry->disturbed),
               error_percent(entry->fit_mean_error), error_percent(entry->held_out_mean_error),
               held_out_of(*entry)});
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
                    held_out_of(entry),
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
       "held_out_mean_error", "held_out_max_error", "held_out", "parameters"});
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
                                   cell(entry.held_out_max_error), held_out_of(entry), parameters});
  }
  return text;
}

}  // namespace orrery::tools
