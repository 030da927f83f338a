#include "planners/metis/placement.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

constexpr double kGigabytePerSecond = 1e9;

/// Slowest link between devices of a node; of a single device the link that it would use.
double inside_bandwidth(const PlannerInput& input, NodeId id,
                        const std::vector<DeviceId>& devices) {
  double slowest = kNever;
  for (std::size_t a = 0; a < devices.size(); ++a) {
    for (std::size_t b = a + 1; b < devices.size(); ++b) {
      slowest = std::min(slowest, input.topology.path(devices[a], devices[b]).bandwidth.value);
    }
  }
  if (slowest < kNever) return slowest / kGigabytePerSecond;
  const models::Node& node = input.cluster.node(id);
  std::string name;
  if (!node.domains.empty()) {
    name = node.domains.front().link;
  } else if (!node.pcie.empty()) {
    name = node.pcie.front().link;
  } else if (!node.nics.empty()) {
    name = node.nics.front().link;
  }
  const auto link = input.cluster.links.find(name);
  if (link == input.cluster.links.end()) return slowest;
  return link->second.bandwidth.value * link->second.efficiency / kGigabytePerSecond;
}

}  // namespace

MetisPlacement::MetisPlacement(const PlannerInput& input, bool as_published, std::vector<int> types)
    : sequence(std::move(types)) {
  for (const DeviceId device : input.devices) {
    const models::Device& place = input.cluster.device(device);
    const auto known = std::find_if(file_.begin(), file_.end(), [&](const Machine& machine) {
      return machine.id == place.node && machine.type == place.gpu_type;
    });
    if (known == file_.end()) {
      file_.push_back({place.node, place.gpu_type, {device}, 0});
    } else {
      known->devices.push_back(device);
    }
  }
  for (Machine& machine : file_) {
    machine.inside = inside_bandwidth(input, machine.id, machine.devices);
  }
  for (const int wanted : sequence) {
    for (std::size_t m = 0; m < file_.size(); ++m) {
      if (file_[m].type != wanted) continue;
      for (const DeviceId device : file_[m].devices) {
        devices.push_back(device);
        type.push_back(wanted);
        node.push_back(static_cast<int>(machine_.size()));
      }
      machine_.push_back(static_cast<int>(m));
      if (as_published) {
        published_type.insert(published_type.end(), file_.front().devices.size(), wanted);
      }
    }
  }
  if (!as_published) measure_spans(input);
}

void MetisPlacement::measure_spans(const PlannerInput& input) {
  const std::size_t nodes = machine_.size();
  span_.assign(nodes, std::vector<double>(nodes, kNever));
  const auto machine = [&](std::size_t n) -> const Machine& { return file_[machine_[n]]; };
  for (std::size_t a = 0; a < nodes; ++a) span_[a][a] = machine(a).inside;
  for (std::size_t length = 1; length < nodes; ++length) {
    for (std::size_t a = 0; a + length < nodes; ++a) {
      const std::size_t b = a + length;
      double slowest = input.topology.path(machine(a).devices.front(), machine(b).devices.front())
                           .bandwidth.value /
                       kGigabytePerSecond;
      if (length > 1) slowest = std::min({slowest, span_[a][b - 1], span_[a + 1][b]});
      span_[a][b] = slowest;
    }
  }
}

double MetisPlacement::bandwidth(int first, int last) const {
  return span_[node[first]][node[last - 1]];
}

std::optional<double> MetisPlacement::published_bandwidth(const std::vector<int>& ranks) const {
  const int node_size = static_cast<int>(file_.front().devices.size());
  std::set<int> nodes, types;
  for (const int rank : ranks) {
    if (rank / node_size >= static_cast<int>(machine_.size())) return std::nullopt;
    nodes.insert(rank / node_size);
  }
  for (const int each : nodes) types.insert(file_[machine_[each]].type);
  double slowest = kNever;
  for (const Machine& machine : file_) {
    if (types.count(machine.type) == 0) continue;
    if (nodes.size() == 1) return machine.inside;
    slowest = std::min(slowest, machine.inside);
  }
  return slowest;
}

}  // namespace orrery::planners
