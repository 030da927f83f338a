/// Fault trace of InfiniteHBD (stepfun-ai/InfiniteHBD-Trace): a JSON list of {"node_id",
/// "event_time" (days), "event_type": "fault_start" or "fault_end", "fault_type": {"Level",
/// "Class", "Desc"}}. A start is a failure of the node with its class as the cause, an end its
/// repair; while several faults hold, the node is down from the first start to the last end. Nodes
/// are numbered in the order in which they first fail; those that never do are not in the file
/// (ImportOptions::nodes).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "models/base/file.h"
#include "models/config/json_text.h"
#include "traces/import/slots.h"

namespace orrery::traces {
namespace {

using nlohmann::json;

struct Fault {
  Instant time;
  bool starts = false;
  std::string node;
  std::string cause;
  std::size_t item = 0;
};

/// "Parameter Plane Cable" as "parameter_plane_cable".
std::string cause_of(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '_';
  }
  return out;
}

std::string text_at(const json& value, const char* key) {
  return value.is_object() && value.contains(key) && value[key].is_string()
             ? value[key].get<std::string>()
             : "";
}

/// Empty with a problem where an item is not one.
std::vector<Fault> read_faults(const json& document, FileProblems& problems) {
  constexpr double kMostDays = static_cast<double>(kLongestTime / kSecond) / kDay;
  std::vector<Fault> faults;
  for (std::size_t i = 0; i < document.size() && !problems.too_many(); ++i) {
    const json& item = document[i];
    const auto fail = [&](const std::string& what) {
      problems.add(1, 1, fmt::format("item {}: {}", i + 1, what));
    };
    const std::string node = text_at(item, "node_id");
    const std::string type = text_at(item, "event_type");
    if (node.empty()) {
      fail("no `node_id`");
    } else if (type != "fault_start" && type != "fault_end") {
      fail("`event_type` is neither fault_start nor fault_end");
    } else if (!item.contains("event_time") || !item["event_time"].is_number() ||
               !(item["event_time"].get<double>() >= 0) ||
               item["event_time"].get<double>() > kMostDays) {
      fail("no `event_time` in days");
    } else {
      const json kind = item.value("fault_type", json());
      faults.push_back({to_instant(Seconds{item["event_time"].get<double>() * kDay}),
                        type == "fault_start", node, cause_of(text_at(kind, "Class")), i});
    }
  }
  std::stable_sort(faults.begin(), faults.end(),
                   [](const Fault& a, const Fault& b) { return a.time < b.time; });
  return faults;
}

Trace read_infinitehbd(const ImportInput& input) {
  const ImportOptions& options = input.options;
  char first = 0;
  std::ifstream(input.path) >> first;
  if (options.most_lines > 0 && first != '[') {
    input.diagnostics.add({input.path, 1, 1}, "this is no JSON list");
    return {};
  }
  std::string text;
  if (const auto problem = read_file(input.path, text)) {
    input.diagnostics.add({input.path, 0, 0}, *problem);
    return {};
  }
  FileProblems problems(input.path, input.diagnostics, kMostImportProblems);
  json document;
  if (const auto fault = config::parse_json(text, document)) {
    const config::Position at = config::position_of_byte(input.path, text, fault->byte);
    problems.add(at.line, at.column, fault->what);
    return {};
  }
  if (!document.is_array() || document.empty()) {
    problems.add(1, 1, "no list of faults");
    return {};
  }
  const std::vector<Fault> faults = read_faults(document, problems);
  Trace trace;
  trace.seed = options.seed;
  std::map<std::string, std::int32_t> numbers;
  std::map<std::string, int> holding;  // Faults of a node that have not ended.
  for (const Fault& fault : faults) {
    const auto [known, added] =
        numbers.try_emplace(fault.node, static_cast<std::int32_t>(numbers.size()));
    int& open = holding[fault.node];
    if (!fault.starts && open == 0) {
      problems.add(1, 1, fmt::format("item {}: a fault ends that did not start", fault.item + 1));
      continue;
    }
    open += fault.starts ? 1 : -1;
    if (open != (fault.starts ? 1 : 0)) continue;
    ir::ClusterEvent event;
    event.time = fault.time;
    event.kind = fault.starts ? ir::EventKind::fail : ir::EventKind::repair;
    event.scope.kind = ir::EventScope::Kind::node;
    event.scope.node = {known->second};
    event.cause = fault.cause;
    event.sequence = static_cast<std::int64_t>(trace.events.size());
    trace.events.push_back(std::move(event));
  }
  if (problems.any()) return {};
  if (options.nodes > 0 && std::ssize(numbers) > options.nodes) {
    input.diagnostics.add({input.path, 0, 0},
                          fmt::format("it names {} nodes, more than the {} that there are",
                                      numbers.size(), options.nodes));
    return {};
  }
  const std::size_t nodes =
      std::max(numbers.size(), static_cast<std::size_t>(std::max<std::int64_t>(options.nodes, 0)));
  for (std::size_t node = 0; node < nodes; ++node) {
    trace.nodes.push_back(
        {fmt::format("{}{}", options.prefix, node), options.gpu_type, options.gpus_per_node});
  }
  trace.horizon =
      options.horizon.count > 0 ? options.horizon : Nanoseconds{faults.back().time.nanoseconds};
  std::erase_if(trace.events, [&](const ir::ClusterEvent& event) {
    return event.time.nanoseconds > trace.horizon.count;
  });
  sort_events(trace);
  return trace;
}

}  // namespace

extern const TraceFormat kInfiniteHbd;
const TraceFormat kInfiniteHbd = {
    "infinitehbd", "JSON list of fault_start and fault_end of nodes, in days", read_infinitehbd};

}  // namespace orrery::traces
