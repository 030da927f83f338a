#include "traces/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "models/base/ids.h"
#include "models/base/limit.h"
#include "models/config/diagnostics.h"
#include "traces/trace.h"

namespace orrery::traces {
namespace {

constexpr std::size_t kMostNames = limit(1'000'000);
/// Nodes among which a name that is near is looked for, once for each problem.
constexpr std::size_t kMostSearched = 2'000;
/// Digits of a name that are a number, so that the next number is one, too.
constexpr std::size_t kNumberDigits = 9;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Digits and at most one point: the exact number of nanoseconds, if it has no finer digits.
std::optional<std::int64_t> plain_seconds(std::string_view text) {
  const std::size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view part = point == std::string_view::npos ? "" : text.substr(point + 1);
  if (whole.empty() || whole.size() > 9 || part.size() > 9) return std::nullopt;
  if (point != std::string_view::npos && part.empty()) return std::nullopt;
  std::int64_t seconds = 0;
  std::int64_t fraction = 0;
  for (const char c : whole) {
    if (!is_digit(c)) return std::nullopt;
    seconds = seconds * 10 + (c - '0');
  }
  for (std::size_t i = 0; i < 9; ++i) {
    if (i < part.size() && !is_digit(part[i])) return std::nullopt;
    fraction = fraction * 10 + (i < part.size() ? part[i] - '0' : 0);
  }
  return seconds * kSecond + fraction;
}

/// "node12" is {"node", 12}; a number with leading zeros is part of the prefix.
std::optional<std::int64_t> number_behind(const std::string& name, std::size_t& prefix) {
  std::size_t at = name.size();
  while (at > 0 && is_digit(name[at - 1]) && name.size() - at < kNumberDigits) --at;
  while (at < name.size() && name[at] == '0' && at + 1 < name.size()) ++at;
  if (at == name.size()) return std::nullopt;
  prefix = at;
  std::int64_t number = 0;
  std::from_chars(name.data() + at, name.data() + name.size(), number);
  return number;
}

std::optional<int> small_number(std::string_view text) {
  int number = 0;
  if (text.size() > kNumberDigits) return std::nullopt;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

/// Positions as "0-3+7".
std::string format_positions(const std::vector<int>& positions) {
  std::string text;
  for (std::size_t i = 0; i < positions.size();) {
    std::size_t last = i;
    while (last + 1 < positions.size() && positions[last + 1] == positions[last] + 1) ++last;
    if (!text.empty()) text += '+';
    text += last == i ? fmt::format("{}", positions[i])
                      : fmt::format("{}-{}", positions[i], positions[last]);
    i = last + 1;
  }
  return text;
}

std::optional<NodeId> find_node(const std::string& name, const TraceLayout& layout,
                                config::TextError& error) {
  if (const auto node = layout.find(name)) return node;
  error.what = fmt::format("unknown node '{}'", name);
  const std::vector<std::string>& names = layout.names();
  if (names.size() > kMostSearched) {
    error.hint = fmt::format("{} nodes: {}, ..., {}", names.size(), names.front(), names.back());
    return std::nullopt;
  }
  // For a large trace the first names show the pattern.
  const std::string near = config::closest(name, names);
  if (!near.empty()) {
    error.hint = fmt::format("did you mean '{}'?", near);
  } else {
    error.hint = fmt::format("nodes: {}", join_names(names).front().text);
  }
  return std::nullopt;
}

/// Appends the devices of "0-3+7" of a node.
bool add_positions(std::string_view text, NodeId node, const TraceLayout& layout,
                   std::vector<DeviceId>& devices, config::TextError& error) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('+', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    const std::size_t dash = item.find('-');
    const auto first = small_number(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : small_number(item.substr(dash + 1));
    if (!first || !last || *last < *first) {
      error = {fmt::format("'{}' is no range of devices", item), "for example 0-3+7"};
      return false;
    }
    if (*last >= layout.gpus(node)) {
      error = {fmt::format("no device {} in node '{}'", *last, layout.name(node)),
               fmt::format("it has 0-{}", layout.gpus(node) - 1)};
      return false;
    }
    for (int i = *first; i <= *last; ++i) devices.push_back({layout.first(node).value + i});
    if (devices.size() > layout.device_count()) {
      error = {"more devices than there are: some are named twice", ""};
      return false;
    }
    begin = end + 1;
  }
  return true;
}

/// Calls `take` for the names of "a{0..2}" or "b", one after the other, until it returns false;
/// whether all were taken.
template <class Take>
bool each_name(std::string_view text, config::TextError& error, Take take) {
  const std::size_t brace = text.find('{');
  const std::string_view prefix = text.substr(0, brace);
  if (brace == std::string_view::npos) {
    error = {bad_node_name(text), ""};
    return error.what.empty() && take(std::string(text));
  }
  const std::size_t dots = text.find("..", brace);
  std::optional<int> first;
  std::optional<int> last;
  if (dots != std::string_view::npos && text.back() == '}') {
    first = small_number(text.substr(brace + 1, dots - brace - 1));
    last = small_number(text.substr(dots + 2, text.size() - dots - 3));
  }
  if (!first || !last || *last < *first || (!prefix.empty() && !bad_node_name(prefix).empty())) {
    error = {fmt::format("'{}' is no run of node names", text), "for example node{0..15}"};
    return false;
  }
  if (as_size(*last - *first) >= kMostNames) {
    error = {fmt::format("'{}' is more than {} nodes", text, kMostNames), ""};
    return false;
  }
  for (int i = *first; i <= *last; ++i) {
    if (!take(fmt::format("{}{}", prefix, i))) return false;
  }
  return true;
}

bool add_devices(std::string_view item, const TraceLayout& layout, std::vector<DeviceId>& devices,
                 config::TextError& error) {
  const std::size_t slash = item.rfind('/');
  if (slash == std::string_view::npos) {
    error = {fmt::format("'{}' names no devices", item), "as in devices:node3/0-3+7"};
    return false;
  }
  return each_name(item.substr(0, slash), error, [&](const std::string& name) {
    const auto node = find_node(name, layout, error);
    return node && add_positions(item.substr(slash + 1), *node, layout, devices, error);
  });
}

}  // namespace

const std::vector<std::string>& kind_names() {
  static const std::vector<std::string> kNames = {"fail", "repair", "notice",  "leave",
                                                  "join", "slow",   "restore", "degrade"};
  return kNames;
}

const char* kind_name(ir::EventKind kind) { return kind_names()[index_of(kind)].c_str(); }

std::string format_time(std::int64_t nanoseconds) {
  std::string text = fmt::format("{}", nanoseconds / kSecond);
  const std::int64_t rest = nanoseconds % kSecond;
  if (rest == 0) return text;
  text += fmt::format(".{:09}", rest);
  while (text.back() == '0') text.pop_back();
  return text;
}

std::optional<std::int64_t> parse_time(std::string_view text, config::TextError& error) {
  if (const auto exact = plain_seconds(text)) return exact;
  Seconds value;
  const bool bare = text.find_first_not_of("0123456789.eE+-") == std::string_view::npos;
  if (bare) {
    const auto number = config::parse_number(text, error);
    if (!number) return std::nullopt;
    value = {*number};
  } else if (!config::from_text(text, value, error)) {
    return std::nullopt;
  }
  if (value.value < 0) {
    error = {fmt::format("'{}' is negative", text), ""};
    return std::nullopt;
  }
  if (value.value > static_cast<double>(kLongestTime / kSecond)) {
    error = {fmt::format("'{}' is more than 100 years", text), ""};
    return std::nullopt;
  }
  return to_nanoseconds(value).count;
}

std::string bad_node_name(std::string_view name) {
  if (name.empty()) return "a node without a name";
  for (const char c : name) {
    if (std::isspace(static_cast<unsigned char>(c)) != 0 ||
        std::iscntrl(static_cast<unsigned char>(c)) != 0 ||
        std::string_view(",;/{}#\"'").find(c) != std::string_view::npos) {
      return fmt::format("the node name '{}' holds a character that traces use otherwise", name);
    }
  }
  return "";
}

std::vector<NameRun> join_names(const std::vector<std::string>& names) {
  std::vector<NameRun> runs;
  for (std::size_t i = 0; i < names.size();) {
    std::size_t prefix = 0;
    const auto first = number_behind(names[i], prefix);
    std::size_t end = i + 1;
    while (first && end < names.size()) {
      std::size_t other = 0;
      const auto number = number_behind(names[end], other);
      if (!number || other != prefix || *number != *first + static_cast<std::int64_t>(end - i) ||
          names[end].compare(0, prefix, names[i], 0, prefix) != 0) {
        break;
      }
      ++end;
    }
    runs.push_back({end == i + 1 ? names[i]
                                 : fmt::format("{}{{{}..{}}}", names[i].substr(0, prefix), *first,
                                               *first + static_cast<std::int64_t>(end - i) - 1),
                    i, end - i});
    i = end;
  }
  return runs;
}

std::optional<std::vector<std::string>> split_names(std::string_view text,
                                                    config::TextError& error) {
  std::vector<std::string> names;
  const auto take = [&](std::string name) {
    names.push_back(std::move(name));
    return true;
  };
  if (!each_name(text, error, take)) return std::nullopt;
  return names;
}

std::string format_scope(const ir::EventScope& scope, const TraceLayout& layout) {
  using Kind = ir::EventScope::Kind;
  if (scope.kind == Kind::job) return "job";
  if (scope.kind == Kind::link) return "link:" + scope.link;
  if (scope.kind == Kind::node) return "node:" + layout.name(scope.node);
  std::vector<std::string> names;
  std::vector<std::string> positions;
  for (std::size_t i = 0; i < scope.devices.size();) {
    const NodeId node = layout.node_of(scope.devices[i]);
    std::vector<int> at;
    for (; i < scope.devices.size() && layout.node_of(scope.devices[i]) == node; ++i) {
      at.push_back(layout.position(scope.devices[i]));
    }
    names.push_back(layout.name(node));
    positions.push_back(format_positions(at));
  }
  std::string text;
  for (std::size_t begin = 0; begin < names.size();) {
    std::size_t end = begin + 1;
    while (end < names.size() && positions[end] == positions[begin]) ++end;
    const std::vector<std::string> same(names.begin() + static_cast<std::ptrdiff_t>(begin),
                                        names.begin() + static_cast<std::ptrdiff_t>(end));
    for (const NameRun& run : join_names(same)) {
      text += text.empty() ? "devices:" : ";";
      text += run.text + "/" + positions[begin];
    }
    begin = end;
  }
  return text;
}

std::optional<ir::EventScope> parse_scope(std::string_view text, const TraceLayout& layout,
                                          config::TextError& error) {
  using Kind = ir::EventScope::Kind;
  ir::EventScope scope;
  scope.kind = Kind::job;
  if (text.empty() || text == "job") return scope;
  const std::size_t colon = text.find(':');
  const std::string_view what = text.substr(0, colon);
  const std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  if (what == "node" && colon != std::string_view::npos) {
    scope.kind = Kind::node;
    const auto node = find_node(std::string(rest), layout, error);
    if (!node) return std::nullopt;
    scope.node = *node;
    return scope;
  }
  if (what == "link" && !rest.empty()) {
    scope.kind = Kind::link;
    scope.link = rest;
    return scope;
  }
  if (what == "devices" && !rest.empty()) {
    scope.kind = Kind::devices;
    for (std::size_t begin = 0; begin <= rest.size();) {
      const std::size_t end = std::min(rest.find(';', begin), rest.size());
      if (!add_devices(rest.substr(begin, end - begin), layout, scope.devices, error)) {
        return std::nullopt;
      }
      begin = end + 1;
    }
    if (!std::is_sorted(scope.devices.begin(), scope.devices.end())) {
      std::sort(scope.devices.begin(), scope.devices.end());
    }
    const auto twice = std::adjacent_find(scope.devices.begin(), scope.devices.end());
    if (twice == scope.devices.end()) return scope;
    error = {fmt::format("device {} of node '{}' twice", layout.position(*twice),
                         layout.name(layout.node_of(*twice))),
             ""};
    return std::nullopt;
  }
  error = {fmt::format("unknown scope '{}'", text),
           "node:NAME, devices:NAME/0-3, link:NAME or job"};
  return std::nullopt;
}

}  // namespace orrery::traces
