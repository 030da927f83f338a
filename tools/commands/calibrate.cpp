/// orrery calibrate: a machine measured, and a profile of it fitted.
#include "experiments/execution/calibrate.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/ir/measurement_text.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"

namespace orrery::tools {
namespace {

using calibration::FitEntry;
using calibration::FitReport;
using experiments::CalibrateResult;
using experiments::CalibrateSettings;

constexpr std::size_t kWorst = 10;
constexpr std::size_t kWarnings = 20;

std::string error_percent(double error) { return error < 0 ? "-" : grouped(100 * error, 1); }

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
               entry->held_out()});
  }
  return table.empty() ? "" : table.text(2);
}

/// Where from, a row for each kind of entry, the entries that fit worst, warnings, files.
void print_calibration(const CalibrateResult& result, const CalibrateSettings&) {
  const ir::MeasurementSet& measured = result.measured;
  const FitReport& report = result.fit;
  std::string text =
      fmt::format("{}\n{}, {}; blocks of {}\n{}, {} of them disturbed and used in no fit\n",
                  measured.machine, measured.libraries, measured.date, measured.model,
                  counted(measured.measurements.size(), "sample"), result.disturbed());
  if (measured.sampling == ir::kQuickSampling) {
    text += "Taken with --quick: a try, not a profile for use; it says so wherever it is used.\n";
  }
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
  text += "\n";
  for (const std::string& file : result.files) text += file + "\n";
  print(text);
}

}  // namespace

extern const Command kCalibrate;
const Command kCalibrate = command<experiments::calibrate, print_calibration>(
    "calibrate", "Measure a machine and fit a profile of it",
    "calibrate --quick --only gemm,op_overhead --no-figure",
    "Exit code 130: interrupted; samples are kept.");

}  // namespace orrery::tools
