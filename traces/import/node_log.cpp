#include "traces/import/node_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "traces/names.h"

namespace orrery::traces {
namespace {

/// Digits of a fixed number, from the front of `text`.
std::optional<int> take_number(std::string_view& text, std::size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, value);
  if (error != std::errc{} || end != text.data() + digits || text.front() == '-') {
    return std::nullopt;
  }
  text.remove_prefix(digits);
  return value;
}

bool take(std::string_view& text, char expected) {
  if (text.empty() || text.front() != expected) return false;
  text.remove_prefix(1);
  return true;
}

/// Seconds east of UTC.
std::optional<std::int64_t> take_offset(std::string_view text) {
  if (text.empty() || text == "Z" || text == "z") return 0;
  const bool west = text.front() == '-';
  if (!west && text.front() != '+') return std::nullopt;
  text.remove_prefix(1);
  const auto hours = take_number(text, 2);
  take(text, ':');
  const auto minutes = text.empty() ? std::optional<int>(0) : take_number(text, 2);
  if (!hours || !minutes || !text.empty() || *hours > 14 || *minutes > 59) return std::nullopt;
  return (west ? -1 : 1) * (*hours * 3600 + *minutes * 60);
}

std::optional<std::int64_t> plain_seconds(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (!(value >= 0 && value < 9e9)) return std::nullopt;
  return std::llround(value * 1e3) * kMillisecond;
}

}  // namespace

std::optional<std::int64_t> parse_clock(std::string_view text) {
  if (const auto seconds = plain_seconds(text)) return seconds;
  const auto year = take_number(text, 4);
  const bool dash = take(text, '-');
  const auto month = take_number(text, 2);
  const bool second_dash = take(text, '-');
  const auto day = take_number(text, 2);
  if (!year || !month || !day || !dash || !second_dash) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year{*year},
                                         std::chrono::month{static_cast<unsigned>(*month)},
                                         std::chrono::day{static_cast<unsigned>(*day)}};
  if (!date.ok() || *year < 1971 || *year > 2200) return std::nullopt;
  std::int64_t seconds =
      std::chrono::sys_days{date}.time_since_epoch().count() * std::int64_t{86400};
  std::int64_t fraction = 0;
  if (!text.empty()) {
    if (!take(text, 'T') && !take(text, ' ')) return std::nullopt;
    const auto hours = take_number(text, 2);
    const bool colon = take(text, ':');
    const auto minutes = take_number(text, 2);
    if (!hours || !minutes || !colon || *hours > 23 || *minutes > 59) return std::nullopt;
    std::optional<int> rest = 0;
    if (take(text, ':')) rest = take_number(text, 2);
    if (!rest || *rest > 60) return std::nullopt;
    if (take(text, '.') || take(text, ',')) {
      std::int64_t place = kSecond / 10;
      for (; !text.empty() && text.front() >= '0' && text.front() <= '9'; place /= 10) {
        fraction += (text.front() - '0') * place;
        text.remove_prefix(1);
      }
    }
    take(text, ' ');
    const auto offset = take_offset(text);
    if (!offset) return std::nullopt;
    seconds += *hours * 3600 + *minutes * 60 + *rest - *offset;
  }
  return seconds * kSecond + fraction;
}

Trace from_node_events(std::vector<NodeEvent> events, const ImportInput& input) {
  const ImportOptions& options = input.options;
  const auto refuse = [&](std::string what) {
    input.diagnostics.add({input.path, 0, 0}, std::move(what));
    return Trace{};
  };
  std::stable_sort(events.begin(), events.end(),
                   [](const NodeEvent& a, const NodeEvent& b) { return a.at < b.at; });
  if (events.empty()) return refuse("no line says that a node failed or came back");
  const std::int64_t start = options.start.value_or(events.front().at);
  std::erase_if(events, [&](const NodeEvent& event) { return event.at < start; });
  if (events.empty()) return refuse("all of it happens before the start that is asked for");
  const std::int64_t length = events.back().at + options.repair_after.count - start;
  if (length > kLongestTime) return refuse("the log is longer than a hundred years");
  std::map<std::string, std::int32_t> numbers;
  for (const NodeEvent& event : events) {
    if (!event.of_job) numbers.try_emplace(event.node);
  }
  if (options.nodes > 0 && std::ssize(numbers) > options.nodes) {
    return refuse(fmt::format("it names {} nodes, more than the {} that there are", numbers.size(),
                              options.nodes));
  }
  Trace trace;
  trace.seed = options.seed;
  for (auto& [name, number] : numbers) {
    if (const std::string bad = bad_node_name(name); !bad.empty()) {
      return refuse(fmt::format("node '{}': {}", name, bad));
    }
    number = static_cast<std::int32_t>(trace.nodes.size());
    trace.nodes.push_back({name, options.gpu_type, options.gpus_per_node});
  }
  for (int spare = 0; static_cast<std::int64_t>(trace.nodes.size()) < options.nodes; ++spare) {
    const std::string name = fmt::format("{}{}", options.prefix, spare);
    if (numbers.contains(name)) continue;
    trace.nodes.push_back({name, options.gpu_type, options.gpus_per_node});
  }
  const auto add = [&](std::int64_t at, const NodeEvent& event, ir::EventKind kind) {
    ir::ClusterEvent out;
    out.time = Instant{at - start};
    out.kind = kind;
    out.cause = event.cause;
    if (event.of_job) {
      out.scope.kind = ir::EventScope::Kind::job;
    } else {
      out.scope.kind = ir::EventScope::Kind::node;
      out.scope.node = {numbers.at(event.node)};
    }
    out.sequence = static_cast<std::int64_t>(trace.events.size());
    trace.events.push_back(std::move(out));
  };
  struct Down {
    std::int64_t until = 0;  ///< When repair_after brings it back.
    NodeEvent last;
  };
  std::map<std::string, Down> down;
  /// Those that are down, in the order in which they come back; names at one instant.
  std::set<std::pair<std::int64_t, std::string>> due;
  const std::int64_t after = options.repair_after.count;
  const auto bring_back = [&](std::int64_t now) {
    if (after == 0) return;
    while (!due.empty() && due.begin()->first <= now) {
      const auto& [at, name] = *due.begin();
      const auto found = down.find(name);
      add(at, found->second.last,
          found->second.last.kind == ir::EventKind::leave ? ir::EventKind::join
                                                          : ir::EventKind::repair);
      down.erase(found);
      due.erase(due.begin());
    }
  };
  for (const NodeEvent& event : events) {
    bring_back(event.at);
    if (event.of_job) {
      add(event.at, event, ir::EventKind::fail);
      continue;
    }
    const bool goes = event.kind == ir::EventKind::fail || event.kind == ir::EventKind::leave;
    const auto found = down.find(event.node);
    if (found != down.end()) due.erase({found->second.until, event.node});
    if (goes) due.insert({event.at + after, event.node});
    if (goes && found != down.end()) {
      found->second.until = event.at + after;
    } else if (goes) {
      add(event.at, event, event.kind);
      down[event.node] = {event.at + after, event};
    } else if (found != down.end()) {
      // What left comes back by joining, whatever the log calls it.
      add(event.at, event,
          found->second.last.kind == ir::EventKind::leave ? ir::EventKind::join : event.kind);
      down.erase(found);
    }
  }
  bring_back(std::numeric_limits<std::int64_t>::max());
  trace.horizon = options.horizon.count > 0 ? options.horizon
                                            : Nanoseconds{std::max<std::int64_t>(length, kSecond)};
  std::erase_if(trace.events, [&](const ir::ClusterEvent& event) {
    return event.time.nanoseconds > trace.horizon.count;
  });
  sort_events(trace);
  return trace;
}

}  // namespace orrery::traces
