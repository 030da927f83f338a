// What is a line through two numbers: optimizer steps and checkpoints.
#include <fmt/format.h>

#include <optional>

#include "calibration/fit/parts.h"
#include "calibration/fit/robust.h"
#include "calibration/fit/samples.h"
#include "models/ir/names.h"

namespace orrery::calibration {
namespace {

using ir::Measurement;
using ir::MeasurementKind;

/// fixed + slope x axis.
struct Line {
  double fixed = 0;
  double slope = 0;
};

/// Fits a line, fills the entry's errors and points.
Line fit_line(SampleSet& set, const Axis& axis, const FitOptions& options, FitEntry& entry) {
  hold_out(set, entry.name, axis, 2, options);
  const auto line_of = [&](const std::vector<const Sample*>& samples) {
    Design design;
    for (const Sample* sample : samples) design.add({1, axis(sample->what)}, sample->value);
    const std::vector<double> found = fit_relative(design);
    return Line{found[0], found[1]};
  };
  const auto with = [&](const Line& line) {
    return
        [&axis, line](const Sample& sample) { return line.fixed + line.slope * axis(sample.what); };
  };
  const Line line = line_of(all(set));
  const Line seen = line_of(training(set));
  judge(set, axis, with(line), with(seen), entry);
  return line;
}

void fit_optimizer(const ir::MeasurementSet& measured, const FitOptions& options,
                   FitReport& report) {
  const Axis axis = [](const Measurement& one) { return one.parameters; };
  auto sets = group_samples(
      measured,
      [](const Measurement& one) {
        if (one.kind != MeasurementKind::optimizer) return std::string();
        return fmt::format("{} optimizer {}", one.device_type, ir::name_of(one.dtype));
      },
      axis);
  for (auto& [name, set] : sets) {
    FitEntry entry = make_entry(name, "optimizer", "parameters", "", "time", "s");
    if (!set.samples.empty()) {
      const Line line = fit_line(set, axis, options, entry);
      entry.parameters = {{"fixed", line.fixed, "s"}, {"per parameter", line.slope, "s"}};
      const Measurement& what = set.samples.front().what;
      report.profile.optimizers.push_back({what.device_type, what.dtype, Seconds{line.fixed},
                                           Seconds{line.slope}, provenance(measured, entry)});
    }
    report_entry(std::move(entry), set, kEnoughSizes, options, report);
  }
}

void fit_storage(const ir::MeasurementSet& measured, const FitOptions& options, FitReport& report) {
  const Axis axis = [](const Measurement& one) { return one.bytes.value; };
  auto sets = group_samples(
      measured,
      [](const Measurement& one) {
        const bool write = one.kind == MeasurementKind::checkpoint_write;
        if (!write && one.kind != MeasurementKind::checkpoint_read) return std::string();
        return fmt::format("checkpoint {} {}", write ? "to" : "from", ir::name_of(one.location));
      },
      axis);
  for (auto& [name, set] : sets) {
    FitEntry entry = make_entry(name, "storage", "checkpoint", "B", "time", "s");
    if (set.samples.empty()) {
      report_entry(std::move(entry), set, kEnoughSizes, options, report);
      continue;
    }
    const Measurement& what = set.samples.front().what;
    const Line line = fit_line(set, axis, options, entry);
    entry.parameters.push_back({"latency", line.fixed, "s"});
    const bool local = what.location == ir::Location::host_memory ||
                       what.location == ir::Location::nvme || what.location == ir::Location::cloud;
    if (line.slope > 0) entry.parameters.push_back({"bandwidth", 1 / line.slope, "B/s"});
    if (line.slope <= 0) {
      report.warnings.push_back(name + ": the time does not grow with the bytes: no profile entry");
    } else if (!local) {
      report.warnings.push_back(name + ": not a storage: no profile entry");
    } else {
      report.profile.storage.push_back(
          {ir::name_of(what.location), what.kind == MeasurementKind::checkpoint_write,
           Seconds{line.fixed}, BytesPerSecond{1 / line.slope}, provenance(measured, entry)});
    }
    report_entry(std::move(entry), set, kEnoughSizes, options, report);
  }
}

}  // namespace

void fit_lines(const ir::MeasurementSet& measured, const FitOptions& options, FitReport& report) {
  fit_optimizer(measured, options, report);
  fit_storage(measured, options, report);
}

}  // namespace orrery::calibration
