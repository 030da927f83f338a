/// Logs of clusters: any CSV with named columns, Slurm's record of node states, and XID messages of
/// NVIDIA's driver.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "traces/import/node_log.h"
#include "traces/import/slots.h"

namespace orrery::traces {
namespace {

struct Columns {
  std::map<std::string, std::size_t> by_name;
  std::size_t count = 0;
  const std::size_t* find(const std::string& name) const {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : &found->second;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, index] : by_name) all.push_back(name);
    return all;
  }
};

constexpr const char* kClockHint = "as in 2024-05-01T12:34:56Z, or seconds";

Columns header_of(const std::vector<config::CsvCell>& cells) {
  Columns columns;
  for (const config::CsvCell& cell : cells) columns.by_name.emplace(cell.text, columns.count++);
  return columns;
}

/// The kind that --map gives a word of the log; none: it is to be ignored.
struct Meaning {
  bool known = false;
  bool ignored = false;
  bool of_job = false;
  ir::EventKind kind = ir::EventKind::fail;
};

Meaning meaning_of(const std::string& word) {
  if (word == "ignore") return {.known = true, .ignored = true};
  if (word == "fail_job") return {.known = true, .of_job = true};
  if (word == "fail") return {.known = true};
  if (word == "repair") return {.known = true, .kind = ir::EventKind::repair};
  if (word == "leave") return {.known = true, .kind = ir::EventKind::leave};
  if (word == "join") return {.known = true, .kind = ir::EventKind::join};
  return {};
}

Trace read_csv_log(const ImportInput& input) {
  const ImportOptions& options = input.options;
  Columns columns;
  std::vector<NodeEvent> events;
  std::vector<config::CsvCell> cells;
  bool first = true;
  bool good = true;
  for_each_line(
      input, "the file is empty",
      [&](const std::string& text, std::int64_t line, FileProblems& problems) {
        if (!good || !split_cells(text, line, cells, problems)) return;
        if (first && (options.time_column.empty() || options.node_column.empty() ||
                      options.event_column.empty())) {
          good = false;
          return problems.add(line, 1, "which columns hold time, node and event?",
                              "--time COLUMN --node COLUMN --event COLUMN");
        }
        if (first) {
          first = false;
          columns = header_of(cells);
          for (const std::string& name : {options.time_column, options.node_column,
                                          options.event_column, options.cause_column}) {
            if (name.empty() || columns.find(name) != nullptr) continue;
            good = false;
            problems.add(line, 1, fmt::format("there is no column '{}'", name),
                         config::suggest(name, columns.names(), "columns"));
          }
          return;
        }
        const ForeignRow row{cells, line, problems};
        if (cells.size() != columns.count) {
          return problems.add(
              line, 1, fmt::format("{} cells under {} columns", cells.size(), columns.count));
        }
        const std::size_t time = *columns.find(options.time_column);
        const std::size_t node = *columns.find(options.node_column);
        const std::size_t event = *columns.find(options.event_column);
        const auto at = parse_clock(cells[time].text);
        if (!at) {
          return row.add_problem(time, fmt::format("'{}' is no time", cells[time].text),
                                 kClockHint);
        }
        const std::string& word = cells[event].text;
        const auto mapped = options.event_kinds.find(word);
        const Meaning meaning =
            meaning_of(mapped == options.event_kinds.end() ? word : mapped->second);
        if (!meaning.known) {
          return row.add_problem(
              event, fmt::format("what does '{}' mean?", word),
              fmt::format("--map {}=fail (or repair, leave, join, fail_job, ignore)", word));
        }
        if (meaning.ignored) return;
        if (!meaning.of_job && cells[node].text.empty()) {
          return row.add_problem(node, "no node is named");
        }
        const std::string cause =
            options.cause_column.empty() ? word : cells[*columns.find(options.cause_column)].text;
        events.push_back({*at, meaning.kind, meaning.of_job, cells[node].text, cause});
      });
  if (!input.diagnostics.empty()) return {};
  return from_node_events(std::move(events), input);
}

/// `sacctmgr show event -P`: a line for each stretch in which a node was not up, "|" between cells.
Trace read_slurm(const ImportInput& input) {
  Columns columns;
  std::vector<NodeEvent> events;
  bool first = true;
  bool good = true;
  for_each_line(
      input, "the file is empty",
      [&](const std::string& text, std::int64_t line, FileProblems& problems) {
        if (!good) return;
        std::vector<config::CsvCell> cells(1);
        for (std::size_t i = 0; i < text.size(); ++i) {
          if (text[i] != '|') {
            cells.back().text += text[i];
          } else {
            cells.push_back({"", static_cast<int>(i) + 2});
          }
        }
        if (first) {
          first = false;
          columns = header_of(cells);
          for (const char* name : {"NodeName", "TimeStart", "TimeEnd", "State"}) {
            if (columns.find(name) != nullptr) continue;
            good = false;
            problems.add(line, 1, fmt::format("there is no column {}", name),
                         "sacctmgr -P show event format=NodeName,TimeStart,TimeEnd,State,Reason");
          }
          return;
        }
        if (cells.size() != columns.count) {
          return problems.add(
              line, 1, fmt::format("{} cells under {} columns", cells.size(), columns.count));
        }
        const auto at = [&](const char* name) -> const config::CsvCell& {
          return cells[*columns.find(name)];
        };
        const std::string& node = at("NodeName").text;
        if (node.empty()) return;  // The whole cluster was registered anew.
        std::string state = at("State").text;
        state = state.substr(0, state.find_first_of("*~#!%$@^-+ "));
        // Draining nodes finish their jobs; reserved and powered-down ones have not failed.
        static constexpr std::array kDown = {"DOWN",  "DRAIN",      "DRAINED",       "FAIL",
                                             "ERROR", "NO_RESPOND", "NOT_RESPONDING"};
        const bool down = std::any_of(kDown.begin(), kDown.end(),
                                      [&](const char* each) { return state == each; });
        if (!down) return;
        const auto from = parse_clock(at("TimeStart").text);
        if (!from) {
          return problems.add(line, at("TimeStart").column,
                              fmt::format("'{}' is no time", at("TimeStart").text), kClockHint);
        }
        const std::size_t* reason = columns.find("Reason");
        std::string cause = reason == nullptr ? state : cells[*reason].text;
        if (cause.empty()) cause = state;
        events.push_back({*from, ir::EventKind::fail, false, node, cause});
        const std::string& end = at("TimeEnd").text;
        if (end == "Unknown" || end.empty()) return;  // It still lasts.
        const auto until = parse_clock(end);
        if (!until || *until < *from) {
          return problems.add(
              line, at("TimeEnd").column,
              until ? "it ends before it starts" : fmt::format("'{}' is no time", end), kClockHint);
        }
        events.push_back({*until, ir::EventKind::repair, false, node, cause});
      });
  if (!input.diagnostics.empty()) return {};
  return from_node_events(std::move(events), input);
}

/// What an XID means for who trains on the GPU [NVIDIA, XID errors].
struct Xid {
  int number;
  bool of_job;  ///< The job dies, the GPU stays: a contained error.
};
constexpr std::array kXids = {Xid{48, false},  Xid{62, false},  Xid{64, false},  Xid{74, false},
                              Xid{79, false},  Xid{92, false},  Xid{94, true},   Xid{95, false},
                              Xid{109, true},  Xid{119, false}, Xid{120, false}, Xid{140, false},
                              Xid{143, false}, Xid{145, false}, Xid{149, false}};

/// Lines of `journalctl -k -o short-iso`, or of a syslog with ISO times: "TIME HOST kernel: NVRM:
/// Xid (PCI:0000:3b:00): 79, ...". Other lines, and XIDs that programs cause (13, 31, 43, 45), are
/// left out.
Trace read_xid(const ImportInput& input) {
  std::vector<NodeEvent> events;
  for_each_line(
      input, "the file is empty",
      [&](const std::string& text, std::int64_t line, FileProblems& problems) {
        const std::size_t mark = text.find("NVRM: Xid");
        const std::size_t colon = mark == std::string::npos ? mark : text.find("): ", mark);
        if (colon == std::string::npos) return;
        int number = 0;
        const char* digits = text.data() + colon + 3;
        if (std::from_chars(digits, text.data() + text.size(), number).ec != std::errc{}) return;
        const auto xid = std::find_if(kXids.begin(), kXids.end(),
                                      [&](const Xid& each) { return each.number == number; });
        const std::size_t blank = text.find(' ');
        const std::size_t next = text.find(' ', blank + 1);
        const auto at = parse_clock(std::string_view(text).substr(0, blank));
        if (!at || next > mark) {
          return problems.add(line, 1, "an XID without an ISO time and a host before it",
                              "journalctl -k -o short-iso");
        }
        if (xid == kXids.end()) return;
        events.push_back({*at, ir::EventKind::fail, xid->of_job,
                          text.substr(blank + 1, next - blank - 1), fmt::format("xid_{}", number)});
      });
  if (!input.diagnostics.empty()) return {};
  return from_node_events(std::move(events), input);
}

}  // namespace

extern const TraceFormat kCsvLog;
const TraceFormat kCsvLog = {"csv", "CSV with columns of time, node and event", read_csv_log};
extern const TraceFormat kSlurmEvents;
const TraceFormat kSlurmEvents = {"slurm", "sacctmgr -P show event: when nodes were down",
                                  read_slurm};
extern const TraceFormat kXidLog;
const TraceFormat kXidLog = {"xid", "kernel log with XID messages of NVIDIA's driver", read_xid};

}  // namespace orrery::traces
