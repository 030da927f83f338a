// Checkpoints.
#include <fmt/format.h>

#include "calibration/fit/parts.h"
#include "models/ir/names.h"

namespace orrery::calibration {

using ir::Measurement;
using ir::MeasurementKind;

void fit_storage(const FitContext& context) {
  fit_entries(
      context, {"storage", "checkpoint", "B", "time", "s"},
      [](const Measurement& one) {
        const bool write = one.kind == MeasurementKind::checkpoint_write;
        if (!write && one.kind != MeasurementKind::checkpoint_read) return std::string();
        return fmt::format("checkpoint {} {}", write ? "to" : "from", ir::name_of(one.location));
      },
      bytes_of,
      [&](FitEntry& entry, SampleSet& set) {
        const Measurement& what = set.samples.front().what;
        const Line line = fit_line(set, bytes_of, bytes_of, context, entry);
        entry.parameters.push_back({"latency", line.fixed, "s"});
        const bool local = what.location == ir::Location::host_memory ||
                           what.location == ir::Location::nvme ||
                           what.location == ir::Location::cloud;
        if (line.slope > 0) entry.parameters.push_back({"bandwidth", 1 / line.slope, "B/s"});
        if (line.slope <= 0) {
          context.report.warnings.push_back(
              entry.name + ": the time does not grow with the bytes: no profile entry");
        } else if (!local) {
          context.report.warnings.push_back(entry.name + ": not a storage: no profile entry");
        } else {
          context.report.profile.storage.push_back(
              {ir::name_of(what.location), what.kind == MeasurementKind::checkpoint_write,
               Seconds{line.fixed}, BytesPerSecond{1 / line.slope},
               provenance(context.measured, entry)});
        }
        return true;
      });
}

}  // namespace orrery::calibration
