// Messages between two devices, and collectives over the closed form on the fitted links.
#include <fmt/format.h>

#include <set>

#include "calibration/fit/parts.h"
#include "calibration/fit/robust.h"
#include "calibration/fit/segments.h"
#include "models/cost/collective.h"
#include "models/ir/names.h"
#include "models/spec/link_calibration.h"

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

std::string link_name(const Measurement& one) {
  return fmt::format("link {}", one.link_class.empty() ? "without a class" : one.link_class);
}

void fit_one_way(const FitContext& context) {
  fit_entries(
      context, {"link", "message", "B", "time", "s", kEnoughMessages},
      [](const Measurement& one) {
        const bool mine = one.kind == MeasurementKind::point_to_point && !one.both_ways;
        return mine ? link_name(one) : std::string();
      },
      bytes_of,
      [&](FitEntry& entry, SampleSet& set) {
        std::set<double> sizes;
        for (const Sample& sample : set.samples) sizes.insert(sample.what.bytes.value);
        if (sizes.size() > kMostSizes) {
          context.report.warnings.push_back(
              fmt::format("{}: fitted to {} of its {} sizes at most, judged by all", entry.name,
                          kMostSizes, sizes.size()));
        }
        const std::vector<TimeSegment> segments = fit_judged(
            set, bytes_of, kMinSizesPerSegment, segments_of,
            [](const std::vector<TimeSegment>& of, const Sample& sample) {
              return time_of(of, sample.what.bytes.value);
            },
            context, entry);
        const std::string link_class = set.samples.front().what.link_class;
        for (const TimeSegment& segment : segments) {
          const std::string from = fmt::format("from {:.0f} B", segment.from);
          entry.parameters.push_back({from + ": latency", segment.latency, "s"});
          entry.parameters.push_back({from + ": bandwidth", 1 / segment.per_byte, "B/s"});
          if (link_class.empty()) continue;
          context.report.profile.links.push_back(
              {link_class, Bytes{segment.from}, Seconds{segment.latency},
               BytesPerSecond{1 / segment.per_byte}, provenance(context.measured, entry)});
        }
        if (link_class.empty()) {
          context.report.warnings.push_back(entry.name +
                                            ": no link class was given: no profile entry");
        }
        return true;
      });
}

/// How much longer a message takes while another one runs the other way.
void check_both_ways(const FitContext& context) {
  fit_entries(
      context, {"check", "message", "B", "time", "s", kEnoughMessages},
      [](const Measurement& one) {
        const bool mine = one.kind == MeasurementKind::point_to_point && one.both_ways;
        return mine ? link_name(one) + ", both ways at once" : std::string();
      },
      bytes_of,
      [&](FitEntry& entry, SampleSet& set) {
        std::vector<TimeSegment> one_way;
        for (const ir::LinkSegment& segment : context.report.profile.links) {
          if (segment.link_class != set.samples.front().what.link_class) continue;
          one_way.push_back(
              {segment.from_bytes.value, segment.latency.value, 1 / segment.bandwidth.value});
        }
        if (one_way.empty()) {
          context.report.warnings.push_back(entry.name + ": no fit of one way to compare");
          return false;
        }
        const double factor = fit_factor(
            set, bytes_of, kMinSizesPerSegment,
            [&](const Measurement& one) { return time_of(one_way, one.bytes.value); }, context,
            entry);
        entry.parameters.push_back({"time over one way", factor, ""});
        if (factor > kHalfDuplex) {
          context.report.warnings.push_back(fmt::format(
              "{}: messages take {:.2f} times as long as one way; the models let each direction "
              "have the whole bandwidth",
              entry.name, factor));
        }
        return true;
      });
}

std::string class_text(const std::string& link_class) {
  return link_class.empty() ? "links without a class" : link_class;
}

/// The ring's time where every edge is of the one class.
double closed_form(const Measurement& one, const models::LinkCalibration& link) {
  std::vector<DeviceId> group;
  for (int i = 0; i < one.ranks; ++i) group.push_back(DeviceId{i});
  const models::Path edge{link.wire_bandwidth, link.wire_latency, models::PathClass::network,
                          &link};
  return models::collective_time(one.collective, models::CollectiveAlgorithm::ring, group,
                                 one.bytes, [&](DeviceId, DeviceId) { return edge; })
      .value;
}

void fit_collectives(const FitContext& context) {
  ir::Profile only_links;
  only_links.links = context.report.profile.links;
  const auto links = models::link_calibrations(only_links);
  fit_entries(
      context, {"collective", "tensor", "B", "time", "s", 4},
      [](const Measurement& one) {
        if (one.kind != MeasurementKind::collective || one.ranks < 2) return std::string();
        return fmt::format("{} over {}, {} ranks", ir::name_of(one.collective),
                           class_text(one.link_class), one.ranks);
      },
      bytes_of,
      [&](FitEntry& entry, SampleSet& set) {
        const Measurement& what = set.samples.front().what;
        const auto link = links.find(what.link_class);
        if (link == links.end()) {
          const std::string why =
              what.link_class.empty()
                  ? std::string("no link class was given")
                  : fmt::format("no messages over {} were measured", what.link_class);
          context.report.warnings.push_back(fmt::format("{}: {}: no entry", entry.name, why));
          return false;
        }
        const double factor = fit_factor(
            set, bytes_of, 2,
            [&](const Measurement& one) { return closed_form(one, link->second); }, context, entry);
        entry.parameters.push_back({"factor on the closed form", factor, ""});
        context.report.profile.collectives.push_back({ir::name_of(what.collective), what.link_class,
                                                      what.ranks, factor,
                                                      provenance(context.measured, entry)});
        return true;
      });
}

}  // namespace

void fit_links(const FitContext& context) {
  fit_one_way(context);
  check_both_ways(context);
  fit_collectives(context);
}

}  // namespace orrery::calibration
