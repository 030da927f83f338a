/// Files that a simulated iteration leaves behind: timeline, run log, program.
#pragma once
#include <string>

#include "experiments/runner/execute.h"
#include "models/config/diagnostics.h"

namespace orrery::tools {

/// Shows Perfetto and Chrome traces, in the browser.
inline constexpr const char* kTimelineViewer = "https://ui.perfetto.dev";

/// Paths; "" writes none.
struct Exports {
  std::string timeline;  ///< Perfetto (.perfetto-trace) or Chrome JSON (.json).
  std::string log;       ///< ir::RunLog.
  std::string program;   ///< ir::Program.
  bool any() const { return !timeline.empty() || !log.empty() || !program.empty(); }
};

/// Reports a timeline whose name has another ending, and files that a closed form cannot give.
void check_exports(const Exports& exports, experiments::CostModel cost,
                   config::Diagnostics& diagnostics);

/// Throws std::runtime_error if a file cannot be written.
void write_exports(const Exports& exports, const experiments::LoadedRun& run,
                   const experiments::RunOutcome& outcome);

}  // namespace orrery::tools
