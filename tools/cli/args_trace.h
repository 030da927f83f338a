/// The flags of `orrery trace generate|stats|import`.
#pragma once
#include <variant>
#include <vector>

#include "tools/cli/args.h"

namespace CLI {
class App;
}

namespace orrery::tools {

/// The commands below `orrery trace`.
struct TraceCommands {
  TraceGenerateArgs generate;
  TraceStatsArgs stats;
  TraceImportArgs import_files;
  std::vector<CLI::App*> apps;  ///< In this order.

  /// The one that was parsed, or null.
  CLI::App* chosen() const;
  Command command() const;
};

void add_trace(CLI::App& app, TraceCommands& commands);

}  // namespace orrery::tools
