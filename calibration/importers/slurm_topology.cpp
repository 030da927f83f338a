#include "calibration/importers/slurm_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "calibration/importers/lines.h"
#include "models/base/limit.h"
#include "models/config/document.h"
#include "models/spec/cluster_file.h"

namespace orrery::calibration {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool all_digits(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Most hosts of a file. Products of brackets grow fast: n[0-99999]m[0-99999].
constexpr std::size_t kMostHosts = limit(100'000);
constexpr std::size_t kLongestName = 255;

/// "0-3" or "12" between brackets; numbers keep their leading zeros.
struct Range {
  long low = 0;
  long high = 0;
  std::size_t digits = 0;
};

std::optional<Range> parse_range(const std::string& text) {
  const std::size_t dash = text.find('-');
  const std::string first = text.substr(0, dash);
  const std::string last = dash == std::string::npos ? first : text.substr(dash + 1);
  if (!all_digits(first) || !all_digits(last) || first.size() > 9 || last.size() > 9) {
    return std::nullopt;
  }
  const Range range{std::stol(first), std::stol(last), first.size()};
  if (range.high < range.low) return std::nullopt;
  return range;
}

/// One name: texts, each with the brackets behind it; the last one may have none.
struct NamePart {
  std::string text;
  std::vector<Range> ranges;
};
using NameParts = std::vector<NamePart>;

std::optional<NameParts> parse_name(const std::string& name) {
  NameParts parts;
  std::size_t length = 0;
  std::size_t at = 0;
  while (at < name.size()) {
    const std::size_t open = std::min(name.find('[', at), name.size());
    NamePart& part = parts.emplace_back(NamePart{name.substr(at, open - at), {}});
    length += part.text.size();
    at = open;
    if (part.text.find(']') != std::string::npos) return std::nullopt;
    if (open == name.size()) break;
    const std::size_t close = name.find(']', open);
    if (close == std::string::npos) return std::nullopt;
    const std::string ranges = name.substr(open + 1, close - open - 1) + ",";
    std::size_t digits = 0;
    for (std::size_t begin = 0; begin < ranges.size();) {
      const std::size_t comma = ranges.find(',', begin);
      const auto range = parse_range(ranges.substr(begin, comma - begin));
      if (!range) return std::nullopt;
      // A list of more is too long, however it goes on.
      if (part.ranges.size() <= kMostHosts) part.ranges.push_back(*range);
      digits = std::max(digits, std::max(range->digits, std::to_string(range->high).size()));
      begin = comma + 1;
    }
    length += digits;
    at = close + 1;
    if (length > kLongestName) return std::nullopt;
  }
  if (parts.empty() || length > kLongestName) return std::nullopt;
  return parts;
}

/// No more than kMostHosts + 1.
std::size_t count_hosts(const NameParts& parts) {
  std::size_t hosts = 1;
  for (const NamePart& part : parts) {
    std::size_t numbers = part.ranges.empty() ? 1 : 0;
    for (const Range& range : part.ranges) {
      numbers =
          std::min(numbers + static_cast<std::size_t>(range.high - range.low) + 1, kMostHosts + 1);
    }
    hosts = std::min(hosts * numbers, kMostHosts + 1);
  }
  return hosts;
}

void expand(const NameParts& parts, std::size_t at, const std::string& prefix,
            std::vector<std::string>& out) {
  if (at == parts.size()) {
    out.push_back(prefix);
    return;
  }
  const std::string head = prefix + parts[at].text;
  if (parts[at].ranges.empty()) return expand(parts, at + 1, head, out);
  for (const Range& range : parts[at].ranges) {
    for (long i = range.low; i <= range.high; ++i) {
      expand(parts, at + 1, fmt::format("{}{:0{}}", head, i, range.digits), out);
    }
  }
}

/// Problems of one sort that are named; of a file that is no topology each line has one.
constexpr int kMostOfOneSort = 10;

/// Names the first problems of each sort, and how many more there are.
class LimitedProblems {
 public:
  explicit LimitedProblems(config::Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  void add(const char* sort, const config::Position& at, std::string what, std::string hint = "") {
    More& more = more_[sort];
    if (++more.count <= kMostOfOneSort) {
      diagnostics_.add(at, std::move(what), std::move(hint));
    } else if (more.count == kMostOfOneSort + 1) {
      more.at = at;
    }
  }
  /// To be called at the end.
  void add_counts() {
    for (const auto& [sort, more] : more_) {
      if (more.count <= kMostOfOneSort) continue;
      diagnostics_.add(more.at, fmt::format("and {} more: {}", more.count - kMostOfOneSort, sort));
    }
  }

 private:
  struct More {
    int count = 0;
    config::Position at;  ///< Of the first that is not named.
  };
  config::Diagnostics& diagnostics_;
  std::map<std::string, More> more_;
};

struct Switch {
  std::string name;
  std::vector<Word> children;  ///< Names of switches.
};

/// Switches of topology.yaml: a list of topologies, of which the cluster's default one (else the
/// first) is read: `tree: {switches: [{switch: NAME, nodes: LIST or children: LIST}]}` or `block:
/// {blocks: [{block: NAME, nodes: LIST}]}`.
std::vector<SlurmNode> read_slurm_yaml(const std::string& path, config::Diagnostics& diagnostics) {
  const config::Value file = config::load_value(path, diagnostics);
  if (!diagnostics.empty()) return {};
  const auto refuse = [&](const config::Position& at, std::string what) {
    diagnostics.add(at, std::move(what), "as Slurm's topology.yaml has it");
  };
  if (file.kind != config::Value::Kind::list || file.items.empty()) {
    refuse({path, 1, 1}, "no list of topologies");
    return {};
  }
  const config::Value* chosen = &file.items.front();
  for (const config::Value& item : file.items) {
    const config::Value* flag = item.find("cluster_default");
    if (flag != nullptr && flag->text == "true") chosen = &item;
  }
  const config::Value* list = nullptr;
  for (const auto& [kind, key] : {std::pair("tree", "switches"), {"block", "blocks"}}) {
    const config::Value* part = chosen->find(kind);
    if (part != nullptr) list = part->find(key);
  }
  if (list == nullptr || list->kind != config::Value::Kind::list) {
    refuse(chosen->at, "a topology without `tree: switches` or `block: blocks`");
    return {};
  }
  std::vector<SlurmNode> nodes;
  std::set<std::string> known;
  int leaves = 0;
  for (const config::Value& item : list->items) {
    const config::Value* hosts = item.find("nodes");
    if (hosts == nullptr) continue;  // A switch above others.
    config::TextError error;
    const auto names = expand_host_list(hosts->text, error);
    if (!names) {
      diagnostics.add(hosts->at, error.what, error.hint);
      continue;
    }
    if (nodes.size() + names->size() > kMostHosts) {
      diagnostics.add(hosts->at, fmt::format("the file names more than {} hosts", kMostHosts));
      return nodes;
    }
    for (const std::string& name : *names) {
      if (!known.insert(name).second) {
        diagnostics.add(hosts->at, fmt::format("node '{}' hangs on two switches", name));
      }
      nodes.push_back({name, leaves});
    }
    ++leaves;
  }
  if (nodes.empty() && diagnostics.empty()) diagnostics.add({path, 0, 0}, "names no node");
  return nodes;
}

}  // namespace

std::optional<std::vector<std::string>> expand_host_list(const std::string& text,
                                                         config::TextError& error) {
  const config::TextError none{fmt::format("'{}' is no host list", text), "as in tux[0-3,12]"};
  // Counted before they are made: what is refused costs no more than its text.
  std::vector<NameParts> names;
  std::size_t hosts = 0;
  std::string name;
  int depth = 0;
  for (const char c : text + ",") {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (c != ',' || depth > 0) {
      name += c;
      continue;
    }
    auto parts = parse_name(name);
    if (!parts) {
      error = none;
      return std::nullopt;
    }
    hosts += count_hosts(*parts);
    if (hosts > kMostHosts) {
      error = {fmt::format("'{}' is more than {} hosts", text, kMostHosts), ""};
      return std::nullopt;
    }
    names.push_back(std::move(*parts));
    name.clear();
  }
  if (depth != 0) {
    error = none;
    return std::nullopt;
  }
  std::vector<std::string> out;
  out.reserve(hosts);
  for (const NameParts& parts : names) expand(parts, 0, "", out);
  return out;
}

std::vector<SlurmNode> read_slurm_topology(const std::string& path,
                                           config::Diagnostics& diagnostics) {
  if (path.ends_with(".yaml") || path.ends_with(".yml")) return read_slurm_yaml(path, diagnostics);
  std::vector<SlurmNode> nodes;
  std::set<std::string> known_nodes, known_switches;
  std::vector<Switch> switches;
  int leaves = 0;
  std::size_t hosts = 0;
  LimitedProblems problems(diagnostics);
  for (const TextLine& line : read_lines(path, diagnostics)) {
    Switch own;
    bool has_nodes = false;
    bool has_values = false;
    bool of_all_blocks = false;
    for (const Word& word : line.words) {
      if (word.text[0] == '#') break;
      const std::size_t equals = word.text.find('=');
      const std::string key = lower(word.text.substr(0, equals));
      const std::string value =
          equals == std::string::npos ? std::string() : word.text.substr(equals + 1);
      has_values = has_values || !value.empty();
      if (value.empty()) {
        problems.add("no KEY=VALUE", word.at, fmt::format("'{}' is no KEY=VALUE", word.text));
      } else if (key == "switchname" || key == "blockname") {
        own.name = value;
        if (!known_switches.insert(value).second) {
          problems.add("second switches", word.at, fmt::format("a second switch '{}'", value));
        }
      } else if (key == "nodes" || key == "switches") {
        config::TextError error;
        auto names = expand_host_list(value, error);
        if (!names) {
          problems.add("no host lists", word.at, error.what, error.hint);
          continue;
        }
        hosts += names->size();
        if (hosts > kMostHosts) {
          diagnostics.add(word.at, fmt::format("the file names more than {} hosts", kMostHosts));
          return {};
        }
        for (const std::string& name : *names) {
          if (key == "switches") {
            own.children.push_back({name, word.at});
          } else if (!known_nodes.insert(name).second) {
            problems.add("nodes on two switches", word.at,
                         fmt::format("node '{}' hangs on two switches", name));
          } else {
            nodes.push_back({name, leaves});
            has_nodes = true;
          }
        }
      } else if (key == "blocksizes") {
        of_all_blocks = true;
      } else if (key != "linkspeed") {
        problems.add("unknown keys", word.at,
                     fmt::format("unknown key '{}'", word.text.substr(0, equals)),
                     "SwitchName, BlockName, Nodes, Switches, BlockSizes or LinkSpeed");
      }
    }
    // What has no KEY=VALUE at all is named as that.
    if (has_values && own.name.empty() && !of_all_blocks) {
      problems.add("lines without SwitchName", line.at, "a line without SwitchName");
    }
    if (has_nodes) ++leaves;
    switches.push_back(std::move(own));
  }
  for (const Switch& own : switches) {
    for (const Word& child : own.children) {
      if (known_switches.contains(child.text)) continue;
      problems.add(
          "switches that no line describes", child.at,
          fmt::format("switch '{}' names '{}', which no line describes", own.name, child.text));
    }
  }
  problems.add_counts();
  if (nodes.empty() && diagnostics.empty()) diagnostics.add({path, 0, 0}, "names no node");
  return nodes;
}

std::string import_slurm_topology(const std::string& path, const std::string& node_file,
                                  const models::Library& library,
                                  config::Diagnostics& diagnostics) {
  const std::vector<SlurmNode> nodes = read_slurm_topology(path, diagnostics);
  const std::size_t before = diagnostics.problems().size();
  config::Value cluster = config::load_value(node_file, diagnostics);
  if (diagnostics.problems().size() != before) return "";
  models::ClusterFile file;
  if (models::read_cluster_file(cluster, file, diagnostics)) {
    models::resolve(file, library, diagnostics);
  }
  if (diagnostics.problems().size() != before) return "";
  const auto entry = std::find_if(cluster.entries.begin(), cluster.entries.end(),
                                  [](const auto& each) { return each.key == "nodes"; });
  if (entry == cluster.entries.end() || entry->value.items.size() != 1) {
    diagnostics.add({node_file, 1, 1}, "must be a cluster file with one node",
                    "orrery import nvidia-topo writes one");
  }
  if (!diagnostics.empty()) return "";
  const config::Value model = entry->value.items.front();
  entry->value.items.clear();
  for (const SlurmNode& node : nodes) {
    config::Value own = model;
    std::erase_if(own.entries, [](const auto& each) {
      return each.key == "name" || each.key == "leaf" || each.key == "count";
    });
    config::Value out = config::Value::map({});
    out.append("name", config::Value::scalar(node.name));
    out.append("leaf", config::Value::scalar(std::to_string(node.leaf)));
    for (auto& each : own.entries) out.append(each.key, std::move(each.value));
    entry->value.items.push_back(std::move(out));
  }
  for (auto& each : cluster.entries) {
    if (each.key != "source") continue;
    each.value =
        config::Value::scalar(fmt::format("{} nodes of {} as the node of {}", nodes.size(),
                                          std::filesystem::path(path).filename().string(),
                                          std::filesystem::path(node_file).filename().string()));
  }
  return config::to_yaml(cluster);
}

}  // namespace orrery::calibration
