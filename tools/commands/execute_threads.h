/// `orrery execute --ranks threads` and `--shares`: all ranks in this process, on the CPU or on
/// parts of one GPU. Private to the execute command.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "executor/launcher/launcher.h"
#include "models/config/diagnostics.h"
#include "models/ir/program.h"
#include "models/spec/cluster.h"
#include "tools/commands/execute_settings.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {

/// What --ranks and --shares ask for.
struct ThreadPlacement {
  bool threads = false;               ///< Else processes, and no shares.
  std::optional<std::int64_t> share;  ///< --shares N: of every device.
  /// By device, percent of the card's multiprocessors; of --shares N once set_shares() has run.
  std::map<std::int64_t, std::int64_t> shares;
};

/// Problems: flags that need ranks to be processes, shares that are none or add up to more than
/// the card.
ThreadPlacement thread_placement(const ExecuteSettings& args, config::Diagnostics& diagnostics);

/// Each device of the program gets its share. Problems: devices without one, devices that the
/// cluster does not have, and more than the card has together.
void set_shares(ThreadPlacement& placement, const ir::Program& program, int cluster,
                config::Diagnostics& diagnostics);

/// The back ends of the ranks: parts of the first GPU. Without shares each rank makes its own.
/// `notes` gets a line about each part, and about GPU types of the cluster file that are named
/// after another share. Throws config::ConfigError when the hardware refuses the split.
executor::ThreadRanks make_thread_ranks(const ThreadPlacement& placement,
                                        const executor::LaunchOptions& options,
                                        const models::Cluster& cluster,
                                        std::vector<std::string>& notes);

}  // namespace orrery::tools
