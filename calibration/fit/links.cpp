// Messages between two devices.
#include <fmt/format.h>

#include <cmath>

#include "calibration/fit/parts.h"
#include "calibration/fit/robust.h"
#include "calibration/fit/samples.h"
#include "calibration/fit/segments.h"

namespace orrery::calibration {
namespace {

using ir::Measurement;
using ir::MeasurementKind;

/// Both directions at once may take this much longer before it is worth a warning.
constexpr double kHalfDuplex = 1.15;
/// Two segments of three sizes each.
constexpr std::size_t kEnoughMessages = 6;

std::vector<TimeSegment> segments_of(const std::vector<const Sample*>& samples) {
  std::vector<SizedTime> times;
  for (const Sample* sample : samples) times.push_back({sample->what.bytes.value, sample->value});
  return fit_segments(std::move(times));
}

FitEntry entry_of(const std::string& name, const char* kind) {
  return make_entry(name, kind, "message", "B", "time", "s");
}

std::string link_name(const Measurement& one) {
  return fmt::format("link {}", one.link_class.empty() ? "without a class" : one.link_class);
}

void fit_one_way(const ir::MeasurementSet& measured, const FitOptions& options, FitReport& report) {
  auto sets = group_samples(
      measured,
      [](const Measurement& one) {
        const bool mine = one.kind == MeasurementKind::point_to_point && !one.both_ways;
        return mine ? link_name(one) : std::string();
      },
      bytes_of);
  for (auto& [name, set] : sets) {
    FitEntry entry = entry_of(name, "link");
    if (set.samples.empty()) {
      report_entry(std::move(entry), set, kEnoughMessages, options, report);
      continue;
    }
    hold_out(set, name, bytes_of, kMinSizesPerSegment, options);
    const std::vector<TimeSegment> segments = segments_of(all(set));
    const std::vector<TimeSegment> seen = segments_of(training(set));
    const auto final_fit = [&](const Sample& sample) {
      return time_of(segments, sample.what.bytes.value);
    };
    const auto training_fit = [&](const Sample& sample) {
      return time_of(seen, sample.what.bytes.value);
    };
    judge(set, bytes_of, final_fit, training_fit, entry);
    const std::string link_class = set.samples.front().what.link_class;
    for (const TimeSegment& segment : segments) {
      const std::string from = fmt::format("from {:.0f} B", segment.from);
      entry.parameters.push_back({from + ": latency", segment.latency, "s"});
      entry.parameters.push_back({from + ": bandwidth", 1 / segment.per_byte, "B/s"});
      if (link_class.empty()) continue;
      report.profile.links.push_back({link_class, Bytes{segment.from}, Seconds{segment.latency},
                                      BytesPerSecond{1 / segment.per_byte},
                                      provenance(measured, entry)});
    }
    if (link_class.empty()) {
      report.warnings.push_back(name + ": no link class was given: no profile entry");
    }
    report_entry(std::move(entry), set, kEnoughMessages, options, report);
  }
}

/// How much longer a message takes while another one runs the other way.
void check_both_ways(const ir::MeasurementSet& measured, const FitOptions& options,
                     FitReport& report) {
  auto sets = group_samples(
      measured,
      [](const Measurement& one) {
        const bool mine = one.kind == MeasurementKind::point_to_point && one.both_ways;
        return mine ? link_name(one) + ", both ways at once" : std::string();
      },
      bytes_of);
  for (auto& [name, set] : sets) {
    FitEntry entry = entry_of(name, "check");
    std::vector<TimeSegment> one_way;
    for (const ir::LinkSegment& segment : report.profile.links) {
      if (set.samples.empty() || segment.link_class != set.samples.front().what.link_class) {
        continue;
      }
      one_way.push_back(
          {segment.from_bytes.value, segment.latency.value, 1 / segment.bandwidth.value});
    }
    if (set.samples.empty() || one_way.empty()) {
      if (!set.samples.empty()) report.warnings.push_back(name + ": no fit of one way to compare");
      if (set.samples.empty()) report_entry(std::move(entry), set, 1, options, report);
      continue;
    }
    hold_out(set, name, bytes_of, kMinSizesPerSegment, options);
    const auto factor_of = [&](const std::vector<const Sample*>& samples) {
      Design design;
      for (const Sample* sample : samples) {
        design.add({time_of(one_way, sample->what.bytes.value)}, sample->value);
      }
      return fit_relative(design).front();
    };
    const double factor = factor_of(all(set));
    const double seen = factor_of(training(set));
    const auto final_fit = [&](const Sample& sample) {
      return factor * time_of(one_way, sample.what.bytes.value);
    };
    const auto training_fit = [&](const Sample& sample) {
      return seen * time_of(one_way, sample.what.bytes.value);
    };
    judge(set, bytes_of, final_fit, training_fit, entry);
    entry.parameters.push_back({"time over one way", factor, ""});
    if (factor > kHalfDuplex) {
      report.warnings.push_back(fmt::format(
          "{}: messages take {:.2f} times as long as one way; the models let each direction have "
          "the whole bandwidth",
          name, factor));
    }
    report_entry(std::move(entry), set, kEnoughMessages, options, report);
  }
}

}  // namespace

void fit_links(const ir::MeasurementSet& measured, const FitOptions& options, FitReport& report) {
  fit_one_way(measured, options, report);
  check_both_ways(measured, options, report);
}

}  // namespace orrery::calibration
