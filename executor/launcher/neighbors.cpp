#include "executor/launcher/neighbors.h"

#include <algorithm>
#include <set>

namespace orrery::executor {
namespace {

std::set<DeviceId> used_devices(const LaunchOptions& o) {
  std::set<DeviceId> out;
  if (o.settings.elastic) out.insert(o.devices.begin(), o.devices.end());
  for (const ir::Rank& rank : o.first.program.ranks) out.insert(rank.device);
  for (const PlannedSwitch& one : o.switches) {
    for (const ir::Rank& rank : one.to.program.ranks) out.insert(rank.device);
  }
  return out;
}

}  // namespace

std::vector<Neighbors> find_neighbors(const LaunchOptions& o,
                                      const std::function<int(DeviceId)>& node_of) {
  const auto is_here = [&](std::size_t node) {
    return o.hosts.empty() || !o.hosts[node].local_agent.empty();
  };
  std::vector<Neighbors> out(std::max<std::size_t>(o.hosts.size(), 1));
  Neighbors here;  // Nodes of this machine are one machine.
  here.emulated_nodes = !o.hosts.empty();
  for (const DeviceId device : used_devices(o)) {
    const std::size_t node = node_of(device);
    (is_here(node) ? here : out[node]).devices.push_back(device.value);
  }
  for (std::size_t node = 0; node < out.size(); ++node) {
    if (is_here(node)) out[node] = here;
  }
  return out;
}

std::string neighbors_key(const std::string& node) { return "neighbors/" + node; }

void describe(config::Visitor& v, Neighbors& neighbors) {
  v.required("emulated_nodes", neighbors.emulated_nodes, "the machine is several nodes");
  v.required("devices", neighbors.devices, "that may run on the machine");
}

}  // namespace orrery::executor
