/// Reads the trace formats of others. Each format is one .cpp; the catalog is in import.cpp.
///
/// All formats turn instances into slots: an instance that appears takes the lowest free slot, so
/// that a trace of 177 VMs of which 32 live at once has 32 nodes, like the cluster that it was
/// recorded on. What is there at time 0 is there at the start. The formats do not say whether an
/// instance was given notice or failed: each departure is a `leave` with cause "spot", each arrival
/// a `join`.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/base/time.h"
#include "models/config/diagnostics.h"
#include "traces/trace.h"

namespace orrery::traces {

/// Nanoseconds since 1970 of "2024-05-01T12:34:56", with a blank in place of the T, a fraction, and
/// Z or an offset (none: UTC); or of plain seconds. None for anything else.
std::optional<std::int64_t> parse_clock(std::string_view text);

/// Which node leaves when a format only says how many are there.
enum class LeaveOrder {
  last_in_first_out,  ///< The one that came last.
  random,             ///< Any, drawn from the seed.
};
std::vector<std::pair<LeaveOrder, const char*>> enum_names(LeaveOrder);

struct ImportOptions {
  std::string gpu_type{};  ///< Empty: not said.
  int gpus_per_node = 1;
  std::int64_t nodes = 0;       ///< Where a file names only those that fail; 0: no others.
  std::string prefix = "node";  ///< Nodes are called prefix0, prefix1, ...
  LeaveOrder order = LeaveOrder::last_in_first_out;
  std::uint64_t seed = 0;
  Nanoseconds horizon{};        ///< 0: the last line (or what the format says).
  std::int64_t most_lines = 0;  ///< Only the first lines, to see what a file is; 0: all.
  /// Of `csv`: names of columns, and what its words for events mean: fail, repair, leave, join,
  /// fail_job, ignore. Words that mean themselves need not be named.
  std::string time_column{};
  std::string node_column{};
  std::string event_column{};
  std::string cause_column{};  ///< Empty: the word for the event.
  std::map<std::string, std::string> event_kinds{};
  /// Of `csv`, `slurm` and `xid`: nodes come back so long after their last failure, where nothing
  /// else brings them back sooner; 0: they do not.
  Nanoseconds repair_after{};
  std::optional<std::int64_t> start{};  ///< Nanoseconds since 1970; none: the first event.
};

/// A file to import, and where its problems go.
struct ImportInput {
  const std::string& path;
  const ImportOptions& options;
  config::Diagnostics& diagnostics;
};

struct TraceFormat {
  const char* name;
  const char* what;  ///< In words, for lists.
  Trace (*read)(const ImportInput& input);
};

const std::vector<TraceFormat>& trace_formats();

/// The first of trace_formats() that reads the file's first lines without a problem; null: none, or
/// no file that can be read twice.
const TraceFormat* format_of(const std::string& path);

/// Reads `path` in a format of trace_formats(). Problems come with line and column, ten and how
/// many more; then the result is incomplete. If the first lines of the file are in another format,
/// only the first problem is named, with that format. Aborts on an unknown format.
Trace import_trace(const std::string& format, const std::string& path, const ImportOptions& options,
                   config::Diagnostics& diagnostics);

}  // namespace orrery::traces
