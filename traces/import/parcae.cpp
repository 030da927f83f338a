/// Parcae's segments (JF-D/Parcae, aws/traces/*.txt): a JSON array per line and interval,
///     [ms, "add|remove|no-op|migration", {"nodes": [...], "duration": ms, ...}]
/// Only arrivals and departures are read, not the decisions of Parcae's own policies. The trace
/// ends with the last interval.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/config/json_text.h"
#include "traces/import/slots.h"

namespace orrery::traces {
namespace {

using nlohmann::json;

bool is_time(const json& value) {
  return value.is_number_integer() && value >= json(0) && value <= json(kLatestMillisecond / 2);
}

/// Why the line is not of the format, or "".
std::string bad_interval(const json& line) {
  if (!line.is_array() || line.size() != 3) return "no array of three";
  if (!is_time(line[0])) return "the first item is no number of milliseconds";
  if (!line[1].is_string()) return "the second item is no kind of change";
  if (!line[2].is_object() || !line[2].contains("nodes") || !line[2]["nodes"].is_array() ||
      !line[2].contains("duration") || !is_time(line[2]["duration"])) {
    return "the third item holds no `nodes` and `duration`";
  }
  for (const json& node : line[2]["nodes"]) {
    if (!node.is_string()) return "`nodes` holds what is no name";
  }
  const std::string kind = line[1];
  if (kind != "add" && kind != "remove" && kind != "no-op" && kind != "migration") {
    return fmt::format("unknown kind of change '{}'", kind);
  }
  return "";
}

Trace read_parcae(const ImportInput& input) {
  std::vector<Change> changes;
  Instant end;
  for_each_line(
      input, "the file is empty",
      [&](const std::string& text, std::int64_t number, FileProblems& problems) {
        json line;
        if (const auto fault = config::parse_json(text, line)) {
          return problems.add(number, static_cast<int>(fault->byte) + 1, fault->what);
        }
        if (const std::string bad = bad_interval(line); !bad.empty()) {
          return problems.add(number, 1, bad,
                              R"(as in [60000, "add", {"nodes": [], "duration": 60000}])");
        }
        const Instant time{line[0].get<std::int64_t>() * kMillisecond};
        const Nanoseconds duration{line[2]["duration"].get<std::int64_t>() * kMillisecond};
        end = std::max(end, time + duration);
        const std::string kind = line[1];
        if (kind != "add" && kind != "remove") return;
        for (const json& node : line[2]["nodes"]) {
          changes.push_back({time, kind == "add", node, number, 1});
        }
      });
  return from_changes(std::move(changes), end, input);
}

}  // namespace

extern const TraceFormat kParcae;
const TraceFormat kParcae = {"parcae", "a JSON array per line and interval", read_parcae};

}  // namespace orrery::traces
