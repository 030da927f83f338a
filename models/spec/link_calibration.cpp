#include "models/spec/link_calibration.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/base/check.h"
#include "models/ir/names.h"

namespace orrery::models {
namespace {

/// Inside a segment bytes / time grows with the bytes, so that the largest is at its end; what
/// remains without the wire is linear, so that the least is at one of its ends.
void find_wire(LinkCalibration& one) {
  const auto end_of = [&](std::size_t i) { return one.segments[i + 1].from; };
  one.wire_bandwidth = one.segments.back().bandwidth;
  for (std::size_t i = 0; i + 1 < one.segments.size(); ++i) {
    const auto& [from, latency, bandwidth] = one.segments[i];
    one.wire_bandwidth =
        std::max(one.wire_bandwidth, end_of(i) / (latency + end_of(i) / bandwidth));
  }
  const auto waiting = [&](std::size_t i, Bytes size) {
    const auto& [from, latency, bandwidth] = one.segments[i];
    return latency + size / bandwidth - size / one.wire_bandwidth;
  };
  one.wire_latency = one.segments.front().latency;
  for (std::size_t i = 0; i < one.segments.size(); ++i) {
    if (i > 0) one.wire_latency = std::min(one.wire_latency, waiting(i, one.segments[i].from));
    if (i + 1 < one.segments.size()) {
      one.wire_latency = std::min(one.wire_latency, waiting(i, end_of(i)));
    }
  }
  one.wire_latency = std::max(one.wire_latency, Seconds{});  // rounding at the fastest size
}

}  // namespace

const LinkCalibration::Segment& LinkCalibration::segment(Bytes message) const {
  ORRERY_CHECK(!segments.empty(), "link class '{}' has no segments", link_class);
  const auto after =
      std::upper_bound(segments.begin(), segments.end(), message,
                       [](Bytes size, const Segment& segment) { return size < segment.from; });
  return after == segments.begin() ? *after : *(after - 1);
}

double LinkCalibration::factor(ir::CollectiveKind kind, int ranks) const {
  const auto found = factors.find(kind);
  if (found == factors.end() || found->second.empty()) return 1;
  const std::vector<Factor>& known = found->second;
  if (ranks <= known.front().ranks) return known.front().factor;
  if (ranks >= known.back().ranks) return known.back().factor;
  const auto upper =
      std::upper_bound(known.begin(), known.end(), ranks,
                       [](int value, const Factor& factor) { return value < factor.ranks; });
  const auto lower = upper - 1;
  const double share =
      static_cast<double>(ranks - lower->ranks) / static_cast<double>(upper->ranks - lower->ranks);
  return lower->factor + share * (upper->factor - lower->factor);
}

std::map<std::string, LinkCalibration> link_calibrations(const ir::Profile& profile) {
  std::map<std::string, LinkCalibration> all;
  const auto of = [&](const std::string& link_class) -> LinkCalibration& {
    LinkCalibration& one = all[link_class];
    one.link_class = link_class;
    return one;
  };
  for (const ir::LinkSegment& segment : profile.links) {
    of(segment.link_class)
        .segments.push_back({segment.from_bytes, segment.latency, segment.bandwidth});
  }
  for (const ir::CollectiveFactor& entry : profile.collectives) {
    for (const auto& [kind, name] : ir::enum_names(ir::CollectiveKind{})) {
      if (entry.collective != name) continue;
      of(entry.link_class).factors[kind].push_back({entry.ranks, entry.factor});
    }
  }
  for (const ir::CollectiveWay& way : profile.collective_ways) {
    for (const auto& [kind, name] : ir::enum_names(ir::CollectiveKind{})) {
      if (way.collective == name) of(way.link_class).ways[kind].push_back(way);
    }
  }
  for (auto& [name, one] : all) {
    std::stable_sort(one.segments.begin(), one.segments.end(),
                     [](const LinkCalibration::Segment& a, const LinkCalibration::Segment& b) {
                       return a.from < b.from;
                     });
    if (!one.segments.empty()) find_wire(one);
    for (auto& [kind, factors] : one.factors) {
      std::stable_sort(factors.begin(), factors.end(),
                       [](const LinkCalibration::Factor& a, const LinkCalibration::Factor& b) {
                         return a.ranks < b.ranks;
                       });
    }
  }
  return all;
}

std::set<std::string> link_classes(const Cluster& cluster) {
  std::set<std::string> names;
  for (const Node& node : cluster.nodes) {
    for (const LinkDomain& domain : node.domains) names.insert(domain.link);
    for (const PcieSwitch& pcie : node.pcie) names.insert({pcie.link, pcie.uplink});
    for (const Nic& nic : node.nics) names.insert(nic.link);
  }
  names.erase("");  // no uplink
  return names;
}

std::vector<std::string> describe_calibrations(const Cluster& cluster, const ir::Profile& profile) {
  const std::set<std::string> present = link_classes(cluster);
  std::vector<std::string> lines;
  for (const auto& [name, link] : link_calibrations(profile)) {
    if (!present.contains(name)) {
      lines.push_back(fmt::format("profile: link class {} is not in the cluster: not used", name));
      continue;
    }
    if (!link.segments.empty()) {
      lines.push_back(fmt::format("profile: links of class {}, {} segment{}", name,
                                  link.segments.size(), link.segments.size() == 1 ? "" : "s"));
    }
    for (const auto& [kind, ways] : link.ways) {
      std::string names;
      for (const ir::CollectiveWay& way : ways) {
        names += fmt::format("{}{} {}", names.empty() ? "" : ", ", ir::name_of(way.algorithm),
                             ir::name_of(way.protocol));
      }
      lines.push_back(fmt::format("profile: {} over links of class {}, the fastest of {}",
                                  ir::name_of(kind), name, names));
    }
    for (const auto& [kind, factors] : link.factors) {
      std::string ranks;
      for (const LinkCalibration::Factor& factor : factors) {
        ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", factor.ranks);
      }
      lines.push_back(fmt::format("profile: {} over links of class {}, factors for {} ranks",
                                  ir::name_of(kind), name, ranks));
    }
  }
  return lines;
}

}  // namespace orrery::models
