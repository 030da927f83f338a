/// Traces of others as ours. Each format is one .cpp; the catalog is in import.cpp.
///
/// What all have in common: foreign instances become slots. An instance that appears takes the
/// lowest free slot, so that a trace of 177 VMs of which 32 live at once has 32 nodes, as the
/// cluster that it stands for. What is there at time 0 is there at the start. Nothing says whether
/// an instance was warned or failed: all goings are `leave` with cause "spot", all comings `join`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/base/time.h"
#include "models/config/diagnostics.h"
#include "traces/trace.h"

namespace orrery::traces {

/// Which node leaves when a format only says how many are there.
enum class LeaveOrder {
  last_in_first_out,  ///< The one that came last.
  random,             ///< Any, drawn from the seed.
};
std::vector<std::pair<LeaveOrder, const char*>> enum_names(LeaveOrder);

struct ImportOptions {
  std::string gpu_type{};  ///< Empty: not said.
  int gpus_per_node = 1;
  std::string prefix = "node";  ///< Nodes are called prefix0, prefix1, ...
  LeaveOrder order = LeaveOrder::last_in_first_out;
  std::uint64_t seed = 0;
  Nanoseconds horizon{};        ///< 0: the last line (or what the format says).
  std::int64_t most_lines = 0;  ///< That are read, to see what a file is; 0: all.
};

struct TraceFormat {
  const char* name;
  const char* what;  ///< In words, for lists.
  Trace (*read)(const std::string& path, const ImportOptions&, config::Diagnostics&);
};

const std::vector<TraceFormat>& trace_formats();

/// The first of trace_formats() that reads the file's first lines without a problem; null: none, or
/// no file that can be read twice.
const TraceFormat* format_of(const std::string& path);

/// Reads `path` in a format of trace_formats(). Problems come with line and column, ten and how
/// many more; then the result is incomplete. Of a file whose very first lines are in another format
/// only the first problem is named, and that format. Aborts on an unknown format.
Trace import_trace(const std::string& format, const std::string& path, const ImportOptions& options,
                   config::Diagnostics& diagnostics);

}  // namespace orrery::traces
