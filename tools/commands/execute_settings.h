/// What the flags of `orrery execute` say, as the launcher's values; problems are reported at the
/// flags. Private to the execute command.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/launcher/launcher.h"
#include "models/config/diagnostics.h"
#include "tools/commands/execute_settings.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {

/// Runs a plan for real.
struct ExecuteSettings {
  std::string plan;  ///< Or `planner`.
  Text planner;
  JobSettings job;
  std::int64_t steps = 20;
  Text backend;
  Text library;
  Text transport;
  Text precision;
  Text data;
  std::optional<double> learning_rate;
  std::int64_t seed = 0;
  Text out;
  std::optional<std::int64_t> log_steps;
  std::vector<std::string> slowdowns;  ///< DEVICE=FACTOR
  Text ranks;                          ///< processes or threads
  Text shares;                         ///< 0=50,1=25, or one number for all
  Text hosts;                          ///< a:4,b:8
  bool ssh = false;
  bool netlab = false;
  Text listen;
  Text advertise;
  std::optional<std::int64_t> checkpoint_every;
  Text checkpoints;
  Text cloud;
  bool prune_checkpoints = false;
  Text elastic;
  Text silence;
  std::vector<std::string> kills;     ///< RANK@STEP
  std::vector<std::string> switches;  ///< PLAN@STEP
  bool quiet = false;
  bool json = false;
};

void describe(config::Visitor& v, ExecuteSettings& settings);

/// "left@right": the right part as a whole number of at least 1. `shape` names both in messages.
std::optional<std::pair<std::string, std::int64_t>> at_step(const std::string& text,
                                                            const char* flag, const char* shape,
                                                            config::Diagnostics& diagnostics);

std::vector<executor::HostSlots> hosts_of(const Text& text, config::Diagnostics& diagnostics);

/// Without faults and slowdowns. `seed` is that of the data.
executor::RunSettings settings_of(const ExecuteSettings& args, std::uint64_t seed,
                                  config::Diagnostics& diagnostics);

/// One value of --kill.
struct KillRequest {
  std::int64_t rank = 0;
  std::int64_t step = 0;
  executor::FaultPoint point = executor::FaultPoint::op;
};
std::vector<KillRequest> kills_of(const ExecuteSettings& args, config::Diagnostics& diagnostics);
/// On the devices of the ranks of the program that runs in that step: programs[0], and after step
/// switches[i] (ascending) programs[i + 1]. Ops are drawn from `seed`.
std::vector<executor::FaultInjection> faults_of(const std::vector<KillRequest>& kills,
                                                const std::vector<std::int64_t>& switches,
                                                const std::vector<ir::Program>& programs,
                                                std::uint64_t seed,
                                                config::Diagnostics& diagnostics);

/// By device.
std::map<std::int32_t, double> slowdowns_of(const ExecuteSettings& args,
                                            config::Diagnostics& diagnostics);

/// "address:port" to `options`.
void set_listen(const Text& text, executor::LaunchOptions& options,
                config::Diagnostics& diagnostics);

}  // namespace orrery::tools
