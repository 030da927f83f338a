/// Builds traces from comings and goings. Private to the importers.
#pragma once
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/base/rng.h"
#include "traces/import.h"

namespace orrery::traces {

/// Most instances that a count may name.
inline constexpr std::int64_t kMostInstances = 1'000'000;
/// The latest millisecond of a trace.
inline constexpr std::int64_t kLatestMillisecond =
    std::numeric_limits<std::int64_t>::max() / kMillisecond;

/// Instances with names, in any order of the lines.
struct Change {
  Instant time;
  bool comes = false;
  std::string instance;
  std::int64_t line = 0;
  int column = 1;
};

/// Sorts by (time, goings first, line) and gives instances slots; one that comes and goes at one
/// instant was never there. Problems: an instance that comes
/// twice or goes without being there. `end`: last instant of the file.
Trace from_changes(std::vector<Change> changes, Instant end, const std::string& path,
                   const std::string& format, const ImportOptions& options,
                   config::Diagnostics& diagnostics);

/// How many instances are there from `time` on.
struct Count {
  Instant time;
  int instances = 0;
};

/// Times ascend; of several counts of one instant the last one holds. Before the first one there is
/// nothing. Problem: more than kMostEvents comings and goings.
Trace from_counts(const std::vector<Count>& counts, Instant end, const std::string& path,
                  const std::string& format, const ImportOptions& options,
                  config::Diagnostics& diagnostics);

}  // namespace orrery::traces
