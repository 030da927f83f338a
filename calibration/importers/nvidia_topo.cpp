// The matrix of nvidia-smi topo -m.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "calibration/importers/lines.h"
#include "calibration/importers/node_topology.h"

namespace orrery::calibration {
namespace {

/// How far a cell says that two devices are; -1: itself or NVLink.
const std::map<std::string, int> kCells = {{"X", -1},   {"PIX", 0}, {"PXB", 1}, {"PHB", 2},
                                           {"NODE", 3}, {"SOC", 4}, {"SYS", 4}};
constexpr int kCommonSwitch = 1;

bool is_gpu(const std::string& name) { return name.starts_with("GPU"); }

bool is_nvlink(const std::string& cell) {
  return cell.size() > 2 && cell.starts_with("NV") &&
         std::all_of(cell.begin() + 2, cell.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// The matrix says NV# where GPUs with NVLink are below one switch too: GPUs that are that near to
/// the same NIC are.
void add_switches_of_nics(NodeTopology& topology) {
  for (std::size_t a = 0; a < topology.gpus(); ++a) {
    for (std::size_t b = 0; b < topology.gpus(); ++b) {
      const std::size_t nics =
          std::min(topology.nic_distance[a].size(), topology.nic_distance[b].size());
      for (std::size_t nic = 0; a != b && nic < nics; ++nic) {
        if (topology.nic_distance[a][nic] > kCommonSwitch) continue;
        if (topology.nic_distance[b][nic] > kCommonSwitch) continue;
        if (b < topology.same_switch[a].size()) topology.same_switch[a][b] = true;
      }
    }
  }
}

/// A link has two ends.
void check_both_ways(const NodeTopology& topology, const std::string& path,
                     config::Diagnostics& diagnostics) {
  for (std::size_t a = 0; a < topology.gpus(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (topology.nvlink[a][b] == topology.nvlink[b][a]) continue;
      diagnostics.add({path, 0, 0},
                      fmt::format("GPU{} and GPU{}: NVLink in one direction only", b, a));
    }
  }
}

/// Names of the columns, up to the affinities.
std::vector<std::string> devices_in(const TextLine& header) {
  std::vector<std::string> names;
  for (const Word& word : header.words) {
    if (word.text == "CPU" || word.text == "NUMA") break;
    names.push_back(word.text);
  }
  return names;
}

}  // namespace

NodeTopology read_nvidia_topo(const std::string& path, config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  NodeTopology topology;
  std::vector<std::string> names;
  std::set<std::string> known;
  std::map<std::string, const TextLine*> rows;
  const std::vector<TextLine> lines = read_lines(path, diagnostics);
  if (lines.empty() && !diagnostics.empty()) return topology;
  for (const TextLine& line : lines) {
    if (line.words.empty()) continue;
    const std::string& first = line.words.front().text;
    if (names.empty()) {
      if (first != "GPU0") continue;
      names = devices_in(line);
      known.insert(names.begin(), names.end());
      if (names.size() <= kMostNodeDevices) continue;
      diagnostics.add(line.at, fmt::format("more than {} devices", kMostNodeDevices));
      return topology;
    }
    if (first.starts_with("Legend")) break;
    if (known.contains(first)) rows[first] = &line;
  }
  if (names.empty()) {
    diagnostics.add({path, 0, 0}, "no header with GPU0", "the output of nvidia-smi topo -m");
    return topology;
  }
  for (const std::string& name : names) {
    if (std::count(names.begin(), names.end(), name) > 1) {
      diagnostics.add({path, 0, 0}, fmt::format("two columns of {}", name));
      return topology;
    }
  }
  for (const std::string& name : names) {
    if (!is_gpu(name)) continue;
    topology.nvlink.emplace_back();
    topology.same_switch.emplace_back();
    topology.nic_distance.emplace_back();
    const auto row = rows.find(name);
    if (row == rows.end()) {
      diagnostics.add({path, 0, 0}, fmt::format("no row of {}", name));
      continue;
    }
    const std::vector<Word>& words = row->second->words;
    if (words.size() < names.size() + 1) {
      diagnostics.add(row->second->at,
                      fmt::format("{} cells for {} devices", words.size() - 1, names.size()));
      continue;
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Word& cell = words[i + 1];
      const bool nvlink = is_nvlink(cell.text);
      const auto distance = kCells.find(cell.text);
      if (!nvlink && distance == kCells.end()) {
        diagnostics.add(cell.at, fmt::format("unknown cell '{}'", cell.text),
                        "X, NV#, PIX, PXB, PHB, NODE or SYS");
        continue;
      }
      const int far = nvlink ? -1 : distance->second;
      if (is_gpu(names[i])) {
        topology.nvlink.back().push_back(nvlink);
        topology.same_switch.back().push_back(!nvlink && far >= 0 && far <= kCommonSwitch);
      } else {
        topology.nic_distance.back().push_back(far);
      }
    }
  }
  if (diagnostics.problems().size() == before) {
    check_both_ways(topology, path, diagnostics);
    add_switches_of_nics(topology);
  }
  return topology;
}

}  // namespace orrery::calibration
