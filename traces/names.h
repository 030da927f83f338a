/// Texts of a trace file: names of kinds, times, node names and scopes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/config/units.h"
#include "models/ir/cluster_event.h"
#include "traces/layout.h"

namespace orrery::traces {

const char* kind_name(ir::EventKind kind);
/// fail, repair, notice, ...: in the order of EventKind.
const std::vector<std::string>& kind_names();

/// Seconds with as many decimals as needed (at most 9): "12.5". parse_time() reads the same back.
std::string format_time(std::int64_t nanoseconds);
/// "3.5 h", "120 s" or plain seconds, zero or more, at most kLongestTime. Plain decimals are exact.
std::optional<std::int64_t> parse_time(std::string_view text, config::TextError& error);

/// Why a text cannot name a node, or "": names hold no blanks, commas, quotes or any of ; / { } #.
std::string bad_node_name(std::string_view name);

/// Names in order, runs of numbers joined: {a0, a1, a2, b} is "a{0..2}", "b".
struct NameRun {
  std::string text;
  std::size_t first = 0;  ///< Index of its first name.
  std::size_t count = 0;
};
std::vector<NameRun> join_names(const std::vector<std::string>& names);
/// The names of "a{0..2}" or "b"; at most a million.
std::optional<std::vector<std::string>> split_names(std::string_view text,
                                                    config::TextError& error);

/// "node:NAME", "devices:NAME/0-3+7;NAME/1" (with runs of names: "a{0..2}/0-7"), "link:NAME",
/// "job".
std::string format_scope(const ir::EventScope& scope, const TraceLayout& layout);
/// Devices come ascending and once; a node of devices that holds the device is known, or `error`
/// says which is not.
std::optional<ir::EventScope> parse_scope(std::string_view text, const TraceLayout& layout,
                                          config::TextError& error);

}  // namespace orrery::traces
