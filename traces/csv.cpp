#include "traces/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/base/text.h"
#include "models/config/csv.h"
#include "models/config/units.h"
#include "traces/layout.h"
#include "traces/lines.h"
#include "traces/names.h"
#include "traces/presence.h"

namespace orrery::traces {
namespace {

using ir::ClusterEvent;
using ir::EventKind;
using ir::EventScope;

// ---- reading ----

constexpr const char* kSchema = "orrery/trace/1";
constexpr std::int64_t kMostGpus = 1024;
constexpr std::size_t kMostDevices = 1 << 24;

/// The `# key: value` lines.
class HeaderReader {
 public:
  HeaderReader(Trace& trace, FileProblems& problems) : trace_(trace), problems_(problems) {}

  /// A line that starts with #.
  void read(std::string_view line, std::int64_t number);
  bool has_schema() const { return schema_; }
  bool has_horizon() const { return horizon_; }

 private:
  void read_key(const std::string& key, const std::string& value, std::int64_t line, int column);
  void read_nodes(std::string_view value, std::int64_t line, int column);

  Trace& trace_;
  FileProblems& problems_;
  std::unordered_set<std::string> known_;
  std::size_t devices_ = 0;
  bool schema_ = false;
  bool horizon_ = false;
};

void HeaderReader::read(std::string_view line, std::int64_t number) {
  const std::size_t begin = std::min(line.find_first_not_of("# \t"), line.size());
  const std::size_t colon = line.find(':', begin);
  if (begin == line.size()) return;
  if (colon == std::string_view::npos) {
    problems_.add(number, 1, "a header line that is not `# key: value`");
    return;
  }
  const std::string key(trimmed(line.substr(begin, colon - begin)));
  const std::string_view rest = line.substr(colon + 1);
  const std::string_view value = trimmed(rest);
  const int column =
      static_cast<int>(value.empty() ? colon + 1 : as_size(value.data() - line.data())) + 1;
  if (!schema_ && key != "schema") {
    problems_.add(number, 1, "the first line must be `# schema: orrery/trace/1`",
                  "orrery trace import reads the formats of others");
    schema_ = true;
  }
  read_key(key, std::string(value), number, column);
}

void HeaderReader::read_key(const std::string& key, const std::string& value, std::int64_t line,
                            int column) {
  config::TextError error;
  if (key == "schema") {
    schema_ = true;
    if (value != kSchema) {
      problems_.add(line, column, fmt::format("unknown schema '{}'", value),
                    fmt::format("this version reads {}", kSchema));
    }
  } else if (key == "source") {
    trace_.source = value;
  } else if (key == "seed") {
    const auto [end, failure] =
        std::from_chars(value.data(), value.data() + value.size(), trace_.seed);
    if (failure != std::errc() || end != value.data() + value.size()) {
      problems_.add(line, column, fmt::format("'{}' is no seed", value), "a whole number");
    }
  } else if (key == "horizon") {
    horizon_ = true;
    if (const auto time = parse_time(value, error)) {
      trace_.horizon = {*time};
    } else {
      problems_.add(line, column, error.what, error.hint);
    }
  } else if (key == "nodes") {
    read_nodes(value, line, column);
  } else {
    trace_.header.emplace_back(key, value);
  }
}

void HeaderReader::read_nodes(std::string_view value, std::int64_t line, int column) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < value.size();) {
    const std::size_t end = std::min(value.find_first_of(" \t", at), value.size());
    if (end > at) words.push_back(value.substr(at, end - at));
    at = end + 1;
  }
  TraceNode node;
  config::TextError error;
  if (words.size() > 1 && words.back().size() > 1 && words.back()[0] == 'x' &&
      words.back().find_first_not_of("0123456789", 1) == std::string_view::npos) {
    const auto gpus = config::parse_integer(words.back().substr(1), 1, kMostGpus, error);
    if (!gpus) return problems_.add(line, column, error.what, error.hint);
    node.gpus = static_cast<int>(*gpus);
    words.pop_back();
  }
  if (words.empty() || words.size() > 2) {
    return problems_.add(line, column, "nodes are `NAMES TYPE xGPUS`",
                         "for example node{0..15} A100-80GB x8");
  }
  if (words.size() == 2) node.gpu_type = words[1];
  const auto names = split_names(words[0], error);
  if (!names) return problems_.add(line, column, error.what, error.hint);
  devices_ += names->size() * as_size(node.gpus);
  if (devices_ > kMostDevices) {
    return problems_.add(line, column, fmt::format("more than {} devices", kMostDevices));
  }
  for (const std::string& name : *names) {
    if (!known_.insert(name).second) {
      problems_.add(line, column, fmt::format("node '{}' twice", name));
      continue;
    }
    node.name = name;
    trace_.nodes.push_back(node);
  }
}

/// Devices that the events of a trace name, counted by event: they take memory and time.
constexpr std::size_t kMostNamed = std::size_t{1} << 26;
/// Events of one instant are kept until they are in order.
constexpr std::size_t kMostAtOnce = 1 << 18;
/// Slower than a millionth of its speed a device has failed.
constexpr double kLeastFactor = 1e-6;

enum Column { kTime, kKind, kScope, kCause, kNotice, kDetection, kFactor, kPrice, kColumns };
const std::vector<std::string>& column_names() {
  static const std::vector<std::string> kNames = {"time",   "kind",      "scope",  "cause",
                                                  "notice", "detection", "factor", "price"};
  return kNames;
}

/// Lines behind the header.
class EventReader {
 public:
  /// `end`: the horizon, where the header says one.
  EventReader(const TraceLayout& layout, std::optional<Instant> end, FileProblems& problems)
      : layout_(layout), end_(end), problems_(problems) {}

  /// The line of column names; false if events cannot be read.
  bool read_columns(const std::vector<config::CsvCell>& cells, std::int64_t line) {
    bool good = true;
    for (const config::CsvCell& cell : cells) {
      const auto at = std::find(column_names().begin(), column_names().end(), cell.text);
      const std::size_t column = at - column_names().begin();
      if (at == column_names().end()) {
        problems_.add(line, cell.column, fmt::format("unknown column '{}'", cell.text),
                      config::suggest(cell.text, column_names(), "columns"));
        good = false;
      } else if (std::find(columns_.begin(), columns_.end(), column) != columns_.end()) {
        problems_.add(line, cell.column, fmt::format("column '{}' twice", cell.text));
        good = false;
      }
      columns_.push_back(column);
    }
    for (const std::size_t needed : {std::size_t{kTime}, std::size_t{kKind}}) {
      if (!good || std::find(columns_.begin(), columns_.end(), needed) != columns_.end()) continue;
      problems_.add(line, 1, fmt::format("no column '{}'", column_names()[needed]),
                    "the line behind the header names the columns");
      good = false;
    }
    return good;
  }

  /// Reading on would take too long.
  bool full() const { return named_ > kMostNamed; }

  std::optional<ClusterEvent> read(const std::vector<config::CsvCell>& cells, std::int64_t line) {
    line_ = line;
    good_ = true;
    if (cells.size() > columns_.size()) {
      add(cells[columns_.size()],
          {fmt::format("{} cells under {} columns", cells.size(), columns_.size()),
           "a cause with a comma needs quotes"});
      return std::nullopt;
    }
    static const config::CsvCell kEmpty;
    at_.fill(&kEmpty);
    for (std::size_t i = 0; i < cells.size(); ++i) at_[columns_[i]] = &cells[i];
    ClusterEvent event;
    event.sequence = line;
    read_time(event);
    const bool has_kind = read_kind(event);
    read_scope(event, has_kind);
    event.cause = at_[kCause]->text;
    if (has_kind) read_numbers(event);
    read_price(event);
    if (!good_) return std::nullopt;
    return event;
  }

 private:
  void add(const config::CsvCell& cell, const config::TextError& error) {
    good_ = false;
    problems_.add(line_, cell.column, error.what, error.hint);
  }

  void read_time(ClusterEvent& event) {
    const config::CsvCell& cell = *at_[kTime];
    config::TextError error;
    const auto time = parse_time(cell.text, error);
    if (!time) {
      if (cell.text.empty()) error = {"no time", ""};
      return add(cell, error);
    }
    event.time = {*time};
    if (event.time < last_) {
      add(cell, {fmt::format("time goes back: {} s after {} s", format_time(*time),
                             format_time(last_.nanoseconds)),
                 "sort the lines by time"});
    }
    last_ = std::max(last_, event.time);
    if (end_ && event.time > *end_) {
      add(cell, {fmt::format("after the horizon of {} s", format_time(end_->nanoseconds)), ""});
    }
  }

  bool read_kind(ClusterEvent& event) {
    const config::CsvCell& cell = *at_[kKind];
    const auto at = std::find(kind_names().begin(), kind_names().end(), cell.text);
    event.kind = static_cast<EventKind>(at - kind_names().begin());
    if (at != kind_names().end()) return true;
    add(cell, {fmt::format("unknown kind '{}'", cell.text),
               config::suggest(cell.text, kind_names(), "kinds")});
    return false;
  }

  void read_scope(ClusterEvent& event, bool has_kind) {
    const config::CsvCell& cell = *at_[kScope];
    config::TextError error;
    auto scope = parse_scope(cell.text, layout_, error);
    // One that is refused may have been read to its end.
    named_ += scope ? scope->devices.size() : layout_.device_count();
    if (full()) error = {fmt::format("events name more than {} devices in all", kMostNamed), ""};
    if (!scope || full()) return add(cell, error);
    event.scope = std::move(*scope);
    if (!has_kind) return;
    using Kind = EventScope::Kind;
    const Kind kind = event.scope.kind;
    const bool on_link = event.kind == EventKind::degrade;
    if (kind == Kind::link && !on_link && event.kind != EventKind::restore) {
      add(cell,
          {fmt::format("{} of a link", kind_name(event.kind)), "links take degrade and restore"});
    } else if (on_link && kind != Kind::link) {
      add(cell, {"degrade of what is no link", "link:NAME"});
    } else if (kind == Kind::job && event.kind != EventKind::fail &&
               event.kind != EventKind::slow && event.kind != EventKind::restore) {
      add(cell, {fmt::format("{} of the whole job", kind_name(event.kind)),
                 "node:NAME or devices:NAME/0-3"});
    }
  }

  void read_numbers(ClusterEvent& event) {
    const EventKind kind = event.kind;
    const bool slows = kind == EventKind::slow || kind == EventKind::degrade;
    const bool noticed = slows || kind == EventKind::fail || kind == EventKind::leave;
    config::TextError error;
    if (wanted(kNotice, kind == EventKind::notice, true, kind)) {
      if (const auto time = parse_time(at_[kNotice]->text, error)) {
        event.notice = {*time};
      } else {
        add(*at_[kNotice], error);
      }
    }
    if (wanted(kDetection, noticed, false, kind)) {
      if (const auto time = parse_time(at_[kDetection]->text, error)) {
        event.detection = Nanoseconds{*time};
      } else {
        add(*at_[kDetection], error);
      }
    }
    if (wanted(kFactor, slows, true, kind)) {
      const auto factor = config::parse_number(at_[kFactor]->text, error);
      if (factor && *factor >= kLeastFactor && *factor <= 1) {
        event.factor = *factor;
      } else if (factor) {
        add(*at_[kFactor], {fmt::format("factor {} is not in 1e-6 to 1", at_[kFactor]->text),
                            "0.5: half as fast"});
      } else {
        add(*at_[kFactor], error);
      }
    }
  }

  /// Whether the cell is to be read; reports one that is missing or belongs to other kinds.
  bool wanted(Column column, bool fits, bool needed, EventKind kind) {
    const config::CsvCell& cell = *at_[column];
    if (fits && (needed || !cell.text.empty())) {
      if (!cell.text.empty()) return true;
      add(*at_[kKind], {fmt::format("{} without {}", kind_name(kind), column_names()[column]), ""});
    } else if (!cell.text.empty()) {
      add(cell, {fmt::format("{} of kind {}", column_names()[column], kind_name(kind)),
                 "leave the cell empty"});
    }
    return false;
  }

  void read_price(ClusterEvent& event) {
    const config::CsvCell& cell = *at_[kPrice];
    if (cell.text.empty()) return;
    DollarsPerSecond price;
    config::TextError error;
    if (!config::from_text(cell.text, price, error)) return add(cell, error);
    if (price.value < 0) return add(cell, {fmt::format("'{}' is negative", cell.text), ""});
    if (event.scope.kind == EventScope::Kind::link) {
      return add(cell, {"a price of a link", "prices belong to devices"});
    }
    event.price = price;
  }

  const TraceLayout& layout_;
  std::optional<Instant> end_;
  FileProblems& problems_;
  std::vector<std::size_t> columns_;
  std::array<const config::CsvCell*, kColumns> at_{};
  std::int64_t line_ = 0;
  Instant last_;
  std::size_t named_ = 0;
  bool good_ = true;
};

/// Events of one instant in the order of their kinds; then presence, then the caller.
class EventQueue {
 public:
  EventQueue(const TraceLayout& layout, FileProblems& problems,
             const std::function<void(const ClusterEvent&)>& on_event)
      : presence_(layout), problems_(problems), on_event_(on_event) {}

  void add(ClusterEvent event) {
    if (!waiting_.empty() &&
        (waiting_.back().time != event.time || waiting_.size() >= kMostAtOnce)) {
      hand_on();
    }
    waiting_.push_back(std::move(event));
  }
  void finish(Instant horizon) {
    hand_on();
    std::vector<Contradiction> found;
    presence_.finish(horizon, found);
    report(found);
  }

 private:
  void hand_on() {
    std::stable_sort(waiting_.begin(), waiting_.end(),
                     [](const ClusterEvent& a, const ClusterEvent& b) { return a.kind < b.kind; });
    std::vector<Contradiction> found;
    for (const ClusterEvent& event : waiting_) {
      presence_.apply(event, found);
      if (found.empty() && !problems_.any()) on_event_(event);
    }
    report(found);
    waiting_.clear();
  }
  void report(const std::vector<Contradiction>& found) {
    for (const Contradiction& one : found) problems_.add(one.sequence, 1, one.what, one.hint);
  }

  Presence presence_;
  FileProblems& problems_;
  const std::function<void(const ClusterEvent&)>& on_event_;
  std::vector<ClusterEvent> waiting_;
};

class TraceScanner {
 public:
  TraceScanner(const std::string& path, const std::function<void(const Trace&)>& on_header,
               const std::function<void(const ClusterEvent&)>& on_event,
               config::Diagnostics& diagnostics)
      : before_(diagnostics.problems().size()),
        lines_(path, diagnostics),
        diagnostics_(diagnostics),
        problems_(path, diagnostics),
        header_(trace_, problems_),
        on_header_(on_header),
        on_event_(on_event) {}

  Trace scan() {
    std::string line;
    bool more = lines_.next(line);
    for (; more && (line.empty() || line[0] == '#'); more = lines_.next(line)) {
      if (!line.empty()) header_.read(line, lines_.number());
    }
    if (!unreadable()) check_header(more);
    if (!more || problems_.any()) return std::move(trace_);
    on_header_(trace_);
    read_events(line);
    return std::move(trace_);
  }

 private:
  bool unreadable() const { return diagnostics_.problems().size() > before_ && !problems_.any(); }

  void check_header(bool more) {
    if (lines_.number() == 0) {
      problems_.add(1, 1, "the file is empty", "a trace starts with `# schema: orrery/trace/1`");
    } else if (!header_.has_schema()) {
      problems_.add(1, 1, "no header: the first line must be `# schema: orrery/trace/1`",
                    "orrery trace import reads the formats of others");
    } else if (trace_.nodes.empty() && !problems_.any()) {
      problems_.add(lines_.number(), 1, "no `# nodes:` line",
                    "for example # nodes: node{0..15} A100-80GB x8");
    } else if (!more && !problems_.any()) {
      problems_.add(lines_.number(), 1, "no line of column names behind the header",
                    "time,kind,scope,cause,notice,detection,factor,price");
    }
  }

  void read_events(std::string line) {
    const TraceLayout layout(trace_.nodes);
    std::optional<Instant> end;
    if (header_.has_horizon()) end = Instant{trace_.horizon.count};
    EventReader events(layout, end, problems_);
    EventQueue queue(layout, problems_, on_event_);
    std::vector<config::CsvCell> cells;
    if (!split_cells(line, lines_.number(), cells, problems_)) return;
    if (!events.read_columns(cells, lines_.number())) return;
    Instant last;
    while (!problems_.too_many() && !events.full() && lines_.next(line)) {
      if (trimmed(line).empty()) continue;
      if (line[0] == '#') {
        problems_.add(lines_.number(), 1, "a header line behind the column names");
        continue;
      }
      if (!split_cells(line, lines_.number(), cells, problems_)) continue;
      auto event = events.read(cells, lines_.number());
      if (!event) continue;
      last = event->time;
      queue.add(std::move(*event));
    }
    if (!end) trace_.horizon = {last.nanoseconds};
    queue.finish({trace_.horizon.count});
  }

  std::size_t before_;  ///< Problems that were there before the file was opened.
  LineReader lines_;
  config::Diagnostics& diagnostics_;
  FileProblems problems_;
  Trace trace_;
  HeaderReader header_;
  const std::function<void(const Trace&)>& on_header_;
  const std::function<void(const ClusterEvent&)>& on_event_;
};

// ---- writing ----

std::string cell(const std::string& text) { return config::one_line(config::csv_cell(text)); }

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

void append_event(std::string& text, const ClusterEvent& event, const TraceLayout& layout) {
  const bool has_factor = event.kind == EventKind::slow || event.kind == EventKind::degrade;
  std::string line =
      fmt::format("{},{},{},{},{},{},{},{}", format_time(event.time.nanoseconds),
                  kind_name(event.kind), cell(format_scope(event.scope, layout)), cell(event.cause),
                  event.kind == EventKind::notice ? format_time(event.notice.count) : "",
                  event.detection ? format_time(event.detection->count) : "",
                  has_factor ? config::format_number(event.factor) : "",
                  event.price ? config::to_text(*event.price) : "");
  while (line.back() == ',') line.pop_back();
  text += line;
  text += '\n';
}

}  // namespace

Trace scan_trace(const std::string& path, const std::function<void(const Trace&)>& on_header,
                 const std::function<void(const ClusterEvent&)>& on_event,
                 config::Diagnostics& diagnostics) {
  return TraceScanner(path, on_header, on_event, diagnostics).scan();
}

Trace read_trace(const std::string& path, config::Diagnostics& diagnostics) {
  std::vector<ClusterEvent> events;
  Trace trace = scan_trace(
      path, [](const Trace&) {}, [&](const ClusterEvent& event) { events.push_back(event); },
      diagnostics);
  trace.events = std::move(events);
  return trace;
}

std::string write_trace(const Trace& trace) {
  for (const TraceNode& node : trace.nodes) {
    ORRERY_CHECK(bad_node_name(node.name).empty(), "{}", bad_node_name(node.name));
  }
  const TraceLayout layout(trace.nodes);
  std::string text =
      fmt::format("# schema: orrery/trace/1\n# source: {}\n# seed: {}\n# horizon: {}\n",
                  config::one_line(trace.source), trace.seed, format_time(trace.horizon.count));
  for (const auto& [key, value] : trace.header) {
    text += fmt::format("# {}: {}\n", key, config::one_line(value));
  }
  text += node_lines(trace.nodes);
  text += "time,kind,scope,cause,notice,detection,factor,price\n";
  for (const ir::ClusterEvent& event : trace.events) append_event(text, event, layout);
  return text;
}

}  // namespace orrery::traces
