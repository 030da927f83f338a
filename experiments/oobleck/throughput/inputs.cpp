#include "experiments/oobleck/throughput/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "models/base/text.h"
#include "models/config/csv.h"

namespace orrery::experiments {
namespace {

/// Calls `take` with the cells of each line.
template <typename Take>
void read_lines(const std::string& path, std::size_t cells, Take take) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(fmt::format("{}: cannot be read", path));
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (trimmed(line).empty()) continue;
    std::vector<config::CsvCell> cells_of_line;
    config::split_csv(line, cells_of_line);
    std::vector<std::string> parts;
    for (const config::CsvCell& cell : cells_of_line) parts.push_back(cell.text);
    if (parts.size() != cells || !take(number, parts)) {
      throw std::runtime_error(fmt::format("{}:{}:1: cannot read '{}'", path, number, line));
    }
  }
}

template <typename Number>
bool parse(const std::string& text, Number& number) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

/// 71.3 s with 30 nodes, 112 s with 26 and 3.7 s less for each node below. [artifact,
/// varuna_simulator.py]
std::map<int, Seconds> bert_restart() {
  std::map<int, Seconds> by_nodes = {
      {30, Seconds{71.3}}, {29, Seconds{67.6}}, {28, Seconds{67.6}}, {27, Seconds{49.1}}};
  for (int tenths = 1120, nodes = 26; nodes >= 15; --nodes, tenths -= 37) {
    by_nodes[nodes] = Seconds{tenths / 10.0};
  }
  return by_nodes;
}

}  // namespace

const char* name_of(OobleckSystem system) {
  switch (system) {
    case OobleckSystem::bamboo:
      return "bamboo";
    case OobleckSystem::varuna:
      return "varuna";
    case OobleckSystem::oobleck:
      return "oobleck";
  }
  return "";
}

const std::vector<OobleckModel>& oobleck_models() {
  static const std::vector<OobleckModel> models = {
      {"BERT-large", "BERT-L", 8192, Seconds{2}, Seconds{76}, Seconds{15.8}, Seconds{76},
       bert_restart(), false, true},
      {"GPT-2-ours",
       "GPT-2",
       1024,
       Seconds{2},
       Seconds{80},
       Seconds{11.5},
       Seconds{83},
       {},
       false,
       true},
      {"GPT-3-medium",
       "GPT-3 M",
       819,
       Seconds{3},
       Seconds{100},
       Seconds{11.2},
       Seconds{78.7},
       {},
       false,
       false},
      {"GPT-3-2.7b",
       "2.7B",
       512,
       Seconds{6},
       Seconds{230},
       Seconds{50},
       Seconds{515},
       {},
       true,
       false},
      {"GPT-3-6.7b",
       "6.7B",
       1024,
       Seconds{10},
       Seconds{450},
       Seconds{120},
       Seconds{701},
       {},
       true,
       false},
  };
  return models;
}

std::string data_folder(const std::string& root) {
  const char* data = std::getenv("ORRERY_DATA");
  return data != nullptr && *data != '\0' ? data : root + "/../shared";
}

std::map<std::pair<std::string, std::string>, NodeThroughput> read_throughput(
    const std::string& path) {
  std::map<std::pair<std::string, std::string>, NodeThroughput> tables;
  read_lines(path, 4, [&](int number, const std::vector<std::string>& cells) {
    if (number == 1) return cells[3] == "samples_per_second";
    int nodes = 0;
    double rate = 0;
    if (!parse(cells[2], nodes) || !parse(cells[3], rate)) return false;
    tables[{cells[0], cells[1]}][nodes] = rate;
    return true;
  });
  return tables;
}

std::vector<NodeChange> read_changes(const std::string& path) {
  std::vector<NodeChange> changes;
  read_lines(path, 3, [&](int, const std::vector<std::string>& cells) {
    NodeChange change{0, cells[1] == "add", cells[2]};
    if (!parse(cells[0], change.ms) || (!change.comes && cells[1] != "remove")) return false;
    changes.push_back(std::move(change));
    return true;
  });
  return changes;
}

double throughput_at(const NodeThroughput& table, int nodes) {
  return table.at(std::clamp(nodes, table.begin()->first, table.rbegin()->first));
}

}  // namespace orrery::experiments
