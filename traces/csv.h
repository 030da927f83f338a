/// Trace files: CSV with a `# key: value` header (trace.h says what the columns mean).
///
///     # schema: orrery/trace/1
///     # source: two nodes, by hand
///     # seed: 0
///     # horizon: 2 h
///     # nodes: a{0..1} H100-80GB x8
///     time,kind,scope,cause,notice,detection,factor,price
///     0.5 h,notice,node:a1,spot,120 s
///     1920,leave,node:a1,spot
///
/// `schema` comes first; `nodes` (names, GPU type, GPUs; the last two may be absent; several lines
/// are allowed) is required; without `horizon` the trace ends with its last event. Columns may
/// be in any order. Times never go back: foreign formats are sorted when they are imported.
/// Events of one instant are taken in the order of their kinds. Prices need a unit ("2 $/h"),
/// notice belongs to kind notice, detection to fail, leave, slow and degrade, factor (above 0, at
/// most 1) to slow and degrade.
#pragma once
#include <functional>
#include <string>

#include "models/config/diagnostics.h"
#include "traces/trace.h"

namespace orrery::traces {

/// Only the first problems of a file are named, then "and N more".
inline constexpr int kMostTraceProblems = 50;

/// Reads a file event by event, in memory that does not depend on its length. `on_header` gets the
/// trace without events (and without the horizon where the file says none), `on_event` each event
/// in order (time, kind, line), as long as there is no problem. Problems, each with line and
/// column: what the comment above forbids, unknown nodes, kinds and columns, and what Presence
/// finds. Returns the trace without events; its horizon is set. `path` may be a pipe.
Trace scan_trace(const std::string& path, const std::function<void(const Trace&)>& on_header,
                 const std::function<void(const ir::ClusterEvent&)>& on_event,
                 config::Diagnostics& diagnostics);

/// The whole trace. After problems it is incomplete: raise() before using it.
Trace read_trace(const std::string& path, config::Diagnostics& diagnostics);

/// Equal traces give equal bytes, and reading them back gives the same events (their sequence
/// numbers are then lines).
std::string write_trace(const Trace& trace);

}  // namespace orrery::traces
