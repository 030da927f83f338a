#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "models/base/check.h"
#include "models/config/units.h"
#include "traces/csv.h"
#include "traces/layout.h"
#include "traces/names.h"

namespace orrery::traces {
namespace {

/// A header value on one line.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : one_line(text)) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string node_line(const TraceNode& node, const std::string& names) {
  std::string line = "# nodes: " + names;
  if (!node.gpu_type.empty()) line += " " + node.gpu_type;
  return line + fmt::format(" x{}\n", node.gpus);
}

/// Equal neighbors share a line.
std::string node_lines(const std::vector<TraceNode>& nodes) {
  std::string text;
  for (std::size_t begin = 0; begin < nodes.size();) {
    std::vector<std::string> names;
    std::size_t end = begin;
    for (; end < nodes.size() && nodes[end].gpu_type == nodes[begin].gpu_type &&
           nodes[end].gpus == nodes[begin].gpus;
         ++end) {
      names.push_back(nodes[end].name);
    }
    for (const NameRun& run : join_names(names)) text += node_line(nodes[begin], run.text);
    begin = end;
  }
  return text;
}

void append_event(std::string& text, const ir::ClusterEvent& event, const TraceLayout& layout) {
  const bool has_factor = event.kind == ir::EventKind::slow || event.kind == ir::EventKind::degrade;
  std::string line =
      fmt::format("{},{},{},{},{},{},{},{}", format_time(event.time.nanoseconds),
                  kind_name(event.kind), cell(format_scope(event.scope, layout)), cell(event.cause),
                  event.kind == ir::EventKind::notice ? format_time(event.notice.count) : "",
                  event.detection ? format_time(event.detection->count) : "",
                  has_factor ? config::format_number(event.factor) : "",
                  event.price ? config::to_text(*event.price) : "");
  while (line.back() == ',') line.pop_back();
  text += line;
  text += '\n';
}

}  // namespace

std::string write_trace(const Trace& trace) {
  for (const TraceNode& node : trace.nodes) {
    ORRERY_CHECK(bad_node_name(node.name).empty(), "{}", bad_node_name(node.name));
  }
  const TraceLayout layout(trace.nodes);
  std::string text =
      fmt::format("# schema: orrery/trace/1\n# source: {}\n# seed: {}\n# horizon: {}\n",
                  one_line(trace.source), trace.seed, format_time(trace.horizon.count));
  for (const auto& [key, value] : trace.header) {
    text += fmt::format("# {}: {}\n", key, one_line(value));
  }
  text += node_lines(trace.nodes);
  text += "time,kind,scope,cause,notice,detection,factor,price\n";
  for (const ir::ClusterEvent& event : trace.events) append_event(text, event, layout);
  return text;
}

}  // namespace orrery::traces
