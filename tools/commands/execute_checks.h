/// Whether devices, files, folders and ports are there that a run will need: looked up before it
/// starts, not after it has trained. Problems are reported at the flags. Private to the execute
/// command.
#pragma once
#include <string>
#include <vector>

#include "executor/launcher/launcher.h"
#include "experiments/study/execute.h"
#include "models/config/diagnostics.h"
#include "models/ir/program.h"

namespace orrery::tools {

/// Hint where the port of --listen cannot be had.
inline constexpr const char* kTakenPort = "another launcher may run: name another port, or none";

/// The hosts have `slots` devices: all that the programs need, no more than the cluster.
void check_devices(const std::vector<ir::Program>& programs, int slots, int cluster,
                   config::Diagnostics& diagnostics);

/// A port that is taken, before anything is written.
void check_listen(const executor::LaunchOptions& options, config::Diagnostics& diagnostics);

/// The --out of a run that may still be refused.
class OutFolder {
 public:
  /// Notes what is not there. "": no folder.
  explicit OutFolder(const std::string& out);
  /// Nothing was started: takes away what of it is there now, inputs and an empty losses.csv.
  void undo() const;

 private:
  std::vector<std::string> missing_;  ///< What is not there yet, innermost first.
};

/// --slowdown, --out, --data, --checkpoints, --cloud. Files of named hosts are for their agents.
void check_places(const executor::LaunchOptions& options, const experiments::LoadedRun& run,
                  const ir::ProgramHeader& header, config::Diagnostics& diagnostics);

/// A note for ranks on this machine that must share its cores; empty: each has one of its own.
std::string crowding(const executor::LaunchOptions& options);

}  // namespace orrery::tools
