// Collectives over the closed form on the fitted links.
#include <fmt/format.h>

#include "calibration/fit/parts.h"
#include "calibration/fit/robust.h"
#include "calibration/fit/samples.h"
#include "models/cost/collective.h"
#include "models/ir/names.h"
#include "models/spec/link_calibration.h"

namespace orrery::calibration {
namespace {

using ir::Measurement;
using ir::MeasurementKind;

constexpr std::size_t kEnoughCollectives = 4;

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

}  // namespace

void fit_collectives(const ir::MeasurementSet& measured, const FitOptions& options,
                     FitReport& report) {
  ir::Profile only_links;
  only_links.links = report.profile.links;
  const auto links = models::link_calibrations(only_links);
  auto sets = group_samples(
      measured,
      [](const Measurement& one) {
        if (one.kind != MeasurementKind::collective || one.ranks < 2) return std::string();
        return fmt::format("{} over {}, {} ranks", ir::name_of(one.collective),
                           class_text(one.link_class), one.ranks);
      },
      bytes_of);
  for (auto& [name, set] : sets) {
    FitEntry entry = make_entry(name, "collective", "tensor", "B", "time", "s");
    if (set.samples.empty()) {
      report_entry(std::move(entry), set, kEnoughCollectives, options, report);
      continue;
    }
    const Measurement& what = set.samples.front().what;
    const auto link = links.find(what.link_class);
    if (link == links.end()) {
      const std::string why =
          what.link_class.empty()
              ? std::string("no link class was given")
              : fmt::format("no messages over {} were measured", what.link_class);
      report.warnings.push_back(fmt::format("{}: {}: no entry", name, why));
      continue;
    }
    hold_out(set, name, bytes_of, 2, options);
    const auto factor_of = [&](const std::vector<const Sample*>& samples) {
      Design design;
      for (const Sample* sample : samples) {
        design.add({closed_form(sample->what, link->second)}, sample->value);
      }
      return fit_relative(design).front();
    };
    const double factor = factor_of(all(set));
    const double seen = factor_of(training(set));
    const auto with = [&](double value) {
      return [&, value](const Sample& sample) {
        return value * closed_form(sample.what, link->second);
      };
    };
    judge(set, bytes_of, with(factor), with(seen), entry);
    entry.parameters.push_back({"factor on the closed form", factor, ""});
    report.profile.collectives.push_back({ir::name_of(what.collective), what.link_class, what.ranks,
                                          factor, provenance(measured, entry)});
    report_entry(std::move(entry), set, kEnoughCollectives, options, report);
  }
}

}  // namespace orrery::calibration
