#include "experiments/study/carry_over.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "experiments/study/plan_text.h"

namespace orrery::experiments {
namespace {

/// Devices of a node, ascending: those that the plan uses of an old one, those left of a new one.
struct Part {
  NodeId node;
  std::vector<DeviceId> devices;
};

std::vector<Part> by_node(const std::vector<DeviceId>& devices, const models::Cluster& cluster) {
  std::vector<Part> parts;
  for (const DeviceId device : devices) {
    const NodeId node = cluster.device(device).node;
    if (parts.empty() || parts.back().node != node) parts.push_back({node, {}});
    parts.back().devices.push_back(device);
  }
  return parts;
}

const std::string& type_of(const Part& part, const models::Cluster& cluster) {
  return cluster.gpu(part.devices.front()).name;
}

/// For each old part the index of its new one; -1: none is large enough.
std::vector<int> match(const std::vector<Part>& from, const models::Cluster& old,
                       const std::vector<Part>& to, const models::Cluster& cluster) {
  std::vector<int> place(from.size(), -1);
  std::vector<bool> taken(to.size());
  const auto take = [&](auto fits) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      for (std::size_t j = 0; place[i] < 0 && j < to.size(); ++j) {
        if (taken[j] || to[j].devices.size() < from[i].devices.size() || !fits(from[i], to[j])) {
          continue;
        }
        place[i] = static_cast<int>(j);
        taken[j] = true;
      }
    }
  };
  take([&](const Part& a, const Part& b) { return type_of(a, old) == type_of(b, cluster); });
  take([&](const Part& a, const Part& b) { return a.devices.size() == b.devices.size(); });
  take([](const Part&, const Part&) { return true; });
  return place;
}

/// "h20-0 to h20-3 (8 x H20 each)" of parts that are alike.
std::string names(const std::vector<const Part*>& parts, const models::Cluster& cluster,
                  std::size_t used) {
  const std::string first = cluster.node(parts.front()->node).name;
  std::string text = first;
  if (parts.size() > 1) {
    text += fmt::format("{}{}", parts.size() == 2 ? " and " : " to ",
                        cluster.node(parts.back()->node).name);
  }
  const std::vector<DeviceId> of_one(parts.front()->devices.begin(),
                                     parts.front()->devices.begin() + static_cast<long>(used));
  return fmt::format("{} ({}{})", text, composition(of_one, cluster),
                     parts.size() > 1 ? " each" : "");
}

/// One line for each run of parts whose nodes follow each other in both clusters, alike.
std::vector<std::string> lines(const std::vector<Part>& from, const models::Cluster& old,
                               const std::vector<Part>& to, const models::Cluster& cluster,
                               const std::vector<int>& place) {
  std::vector<std::string> text;
  for (std::size_t begin = 0; begin < from.size();) {
    std::vector<const Part*> left, right;
    std::size_t end = begin;
    const auto goes_on = [&] {
      if (end == begin) return true;
      const Part &a = from[end - 1], &b = from[end];
      const Part &c = to[place[end - 1]], &d = to[place[end]];
      return b.node.value == a.node.value + 1 && d.node.value == c.node.value + 1 &&
             a.devices.size() == b.devices.size() && type_of(a, old) == type_of(b, old) &&
             type_of(c, cluster) == type_of(d, cluster);
    };
    while (end < from.size() && goes_on()) {
      left.push_back(&from[end]);
      right.push_back(&to[place[end]]);
      ++end;
    }
    const std::size_t used = left.front()->devices.size();
    text.push_back(fmt::format("{} -> {}", names(left, old, used), names(right, cluster, used)));
    begin = end;
  }
  return text;
}

void rename(ir::Plan& plan, const std::map<DeviceId, DeviceId>& devices) {
  for (ir::Pipeline& pipeline : plan.pipelines) {
    for (ir::Stage& stage : pipeline.stages) {
      for (ir::Segment& segment : stage.segments) {
        for (ir::Group& group : segment.groups) {
          for (DeviceId& device : group.devices) device = devices.at(device);
        }
      }
    }
  }
  plan.cluster_hash.clear();
}

}  // namespace

CarriedOver carry_over(const ir::Plan& plan, const models::Cluster* made_for,
                       const models::Cluster& cluster, const std::vector<DeviceId>& left) {
  CarriedOver out{plan, {}, ""};
  const std::vector<DeviceId> used = ir::devices_of(plan);
  std::map<DeviceId, DeviceId> devices;
  if (made_for == nullptr || used.empty() || used.back().value >= made_for->size()) {
    if (used.size() > left.size()) {
      out.problem = fmt::format("the plan uses {} devices, {} are there", used.size(), left.size());
      return out;
    }
    for (std::size_t i = 0; i < used.size(); ++i) devices[used[i]] = left[i];
    out.mapping = {
        fmt::format("devices {} -> {} ({}): the cluster that it was made for is not known",
                    id_ranges(used), id_ranges({left.begin(), left.begin() + std::ssize(used)}),
                    composition({left.begin(), left.begin() + std::ssize(used)}, cluster))};
    rename(out.plan, devices);
    return out;
  }
  const std::vector<Part> from = by_node(used, *made_for);
  const std::vector<Part> to = by_node(left, cluster);
  const std::vector<int> place = match(from, *made_for, to, cluster);
  const auto homeless = std::find(place.begin(), place.end(), -1);
  if (homeless != place.end()) {
    const Part& part = from[homeless - place.begin()];
    out.problem = fmt::format("no node is left for {} ({} of its GPUs are used)",
                              made_for->node(part.node).name, part.devices.size());
    return out;
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    for (std::size_t d = 0; d < from[i].devices.size(); ++d) {
      devices[from[i].devices[d]] = to[place[i]].devices[d];
    }
  }
  out.mapping = lines(from, *made_for, to, cluster, place);
  rename(out.plan, devices);
  return out;
}

}  // namespace orrery::experiments
