/// What the importers share: reading lines and cells, and building traces from arrivals and
/// departures. Private to traces/import.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/base/limit.h"
#include "traces/import/import.h"
#include "traces/lines.h"

namespace orrery::traces {

/// Most instances that a count may name.
inline constexpr std::int64_t kMostInstances = limit(100'000);
/// The latest millisecond of a trace.
inline constexpr std::int64_t kLatestMillisecond = kLongestTime / kMillisecond;

/// Calls `read` for each line that is not blank, until there are too many problems; a file without
/// such a line is a problem: `nothing`.
void for_each_line(
    const ImportInput& input, const char* nothing,
    const std::function<void(const std::string& text, std::int64_t line, FileProblems&)>& read);

/// A line of comma-separated cells. Reading a cell of the wrong kind adds a problem.
struct ForeignRow {
  const std::vector<config::CsvCell>& cells;
  std::int64_t line;
  FileProblems& problems;

  void add_problem(std::size_t cell, std::string what, std::string hint = "") const {
    problems.add(line, cells[cell].column, std::move(what), std::move(hint));
  }
  std::optional<std::int64_t> integer(std::size_t cell, std::int64_t most) const;
};
/// The same for lines of `columns` cells, which are described as "seconds,count".
void for_each_row(const ImportInput& input, std::size_t columns, const char* description,
                  const char* nothing, const std::function<void(const ForeignRow&)>& read);

/// An instance with a name that comes or goes; in any order of the lines.
struct Change {
  Instant time;
  bool comes = false;
  std::string instance;
  std::int64_t line = 0;
  int column = 1;
};

/// Sorts by (time, departures first, line) and gives instances slots; one that comes and goes at
/// one instant was never there. Problems: an instance that comes twice or goes without being there.
/// `end`: last instant of the file.
Trace from_changes(std::vector<Change> changes, Instant end, const ImportInput& input);

/// How many instances are there from `time` on.
struct Count {
  Instant time;
  int instances = 0;
};

/// Times ascend; of several counts at one instant the last one holds. Before the first one there is
/// nothing. Problem: more than kMostEvents arrivals and departures.
Trace from_counts(const std::vector<Count>& counts, Instant end, const ImportInput& input);

}  // namespace orrery::traces
