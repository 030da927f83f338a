#include "calibration/importers/node_topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::calibration {
namespace {

using Members = std::vector<int>;

/// Sets of GPUs that `joined` connects, directly or over others; in the order of their first one.
std::vector<Members> components(const std::vector<std::vector<bool>>& joined) {
  std::vector<Members> sets;
  std::vector<bool> seen(joined.size(), false);
  for (std::size_t start = 0; start < joined.size(); ++start) {
    if (seen[start]) continue;
    Members set;
    std::vector<std::size_t> open = {start};
    seen[start] = true;
    while (!open.empty()) {
      const std::size_t at = open.back();
      open.pop_back();
      set.push_back(static_cast<int>(at));
      for (std::size_t next = 0; next < joined.size(); ++next) {
        if (seen[next] || !(joined[at][next] || joined[next][at])) continue;
        seen[next] = true;
        open.push_back(next);
      }
    }
    std::sort(set.begin(), set.end());
    sets.push_back(set);
  }
  return sets;
}

std::vector<Members> nic_members(const std::vector<std::vector<int>>& distance) {
  std::vector<Members> members(distance.empty() ? 0 : distance.front().size());
  for (std::size_t gpu = 0; gpu < distance.size(); ++gpu) {
    if (distance[gpu].empty()) continue;
    const int nearest = *std::min_element(distance[gpu].begin(), distance[gpu].end());
    for (std::size_t nic = 0; nic < members.size(); ++nic) {
      if (distance[gpu][nic] == nearest) members[nic].push_back(static_cast<int>(gpu));
    }
  }
  return members;
}

std::string list(const char* key, const std::vector<Members>& sets, const std::string& link) {
  if (sets.empty()) return "";
  std::string text = fmt::format("    {}:\n", key);
  for (const Members& set : sets) {
    text += fmt::format("      - {{link: {}, members: [{}]}}\n", link, fmt::join(set, ", "));
  }
  return text;
}

}  // namespace

std::vector<std::vector<int>> link_domains(const std::vector<std::vector<bool>>& joined) {
  std::vector<Members> domains;
  for (const Members& set : components(joined)) {
    if (set.size() < 2) continue;
    std::vector<Members> pairs;
    for (std::size_t i = 0; i < set.size(); ++i) {
      for (std::size_t j = i + 1; j < set.size(); ++j) {
        const auto a = set[i], b = set[j];
        if (joined[a][b] || joined[b][a]) pairs.push_back({set[i], set[j]});
      }
    }
    if (2 * pairs.size() == set.size() * (set.size() - 1)) {
      domains.push_back(set);
    } else {
      domains.insert(domains.end(), pairs.begin(), pairs.end());
    }
  }
  return domains;
}

std::string node_yaml(const NodeTopology& topology, const NodeNames& names,
                      config::Diagnostics& diagnostics) {
  const auto need = [&](bool needed, const std::string& name, const char* flag, const char* what) {
    if (!needed || !name.empty()) return;
    diagnostics.add({flag, 0, 0}, fmt::format("missing: the node has {}", what),
                    "a name of the library; orrery list gpus, orrery list links");
  };
  const std::vector<Members> domains = link_domains(topology.nvlink);
  std::vector<Members> nics = nic_members(topology.nic_distance);
  std::erase_if(nics, [](const Members& members) { return members.empty(); });
  need(true, names.gpu, "--gpu NAME", "GPUs");
  need(true, names.pcie, "--link pcie=CLASS", "PCIe slots");
  need(!domains.empty(), names.nvlink, "--link nvlink=CLASS", "NVLink");
  need(!nics.empty(), names.nic, "--link nic=CLASS", "NICs");
  std::string text = fmt::format(
      "schema: orrery/cluster/1\nname: {}\nsource: \"{}\"\nnodes:\n  - name: {}\n    gpus: {{type: "
      "{}, count: {}}}\n",
      names.node, names.source, names.node, names.gpu, topology.gpus());
  text += list("domains", domains, names.nvlink);
  text += list("pcie", components(topology.same_switch), names.pcie);
  text += list("nics", nics, names.nic);
  return text;
}

}  // namespace orrery::calibration
