/// The launcher: brings a Program up as one process for each device, on this machine or on named
/// hosts, watches it, gathers the run log, and starts a new generation with another Program when
/// devices are lost (what to run then comes from outside) or when a switch is planned.
///
/// Survivors of a failure keep their processes and state. Every wait has a deadline; no process
/// outlives the launcher: local ranks die with it (PR_SET_PDEATHSIG), remote ones lose the store.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "executor/launcher/settings.h"
#include "models/base/ids.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"

namespace orrery::executor {

/// A machine and how many devices of the cluster it stands for: devices are counted over the hosts
/// in their order.
struct HostSlots {
  std::string name;  ///< Name or address; its ranks listen there.
  int slots = 0;
  /// Not empty: its agent is a process of this machine, started with these further arguments.
  std::vector<std::string> local_agent = {};
};

struct NextProgram {
  ir::Program program;
  std::string what;  ///< In words, for the log.
};

/// Why a new program is needed.
struct LostDevices {
  std::vector<DeviceId> lost;   ///< Since the last question; may be empty (all processes live).
  std::vector<DeviceId> live;   ///< Ascending.
  std::int64_t last_step = 0;   ///< That all ranks had finished.
  std::int64_t generation = 0;  ///< That ended.
  /// `step` of the planned switch that was made last; 0: none so far.
  std::int64_t switched_after = 0;
};
/// The program to go on with, or why there is none. Lost devices are not in it.
using NextProgramFunction =
    std::function<std::variant<NextProgram, std::string>(const LostDevices&)>;

/// From the plan that runs to another one after `step`, without a failure.
struct PlannedSwitch {
  std::int64_t step = 0;
  NextProgram to;
};

struct StepLine {
  std::int64_t generation = 0;
  std::int64_t step = 0;
  double loss = 0;
  double start_seconds = 0;  ///< From the start of the run.
  /// From the first rank's start to the last one's end. Of a staggered program, whose ranks begin a
  /// step while others are in the one before: from the end of that step, if the generation has it.
  double seconds = 0;
  double tokens_per_second = 0;
};

struct RankSummary {
  std::int32_t device = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t clock_offset_ns = 0;
  std::int64_t clock_uncertainty_ns = 0;
  std::int64_t sent_bytes = 0;
  std::int64_t received_bytes = 0;
};

struct GenerationSummary {
  std::int64_t number = 0;
  std::string what;
  std::vector<RankSummary> ranks;
  struct Link {
    int from = 0;
    int to = 0;
    std::int64_t bytes = 0;
  };
  std::vector<Link> links;  ///< Between ranks that exchanged anything.
  std::vector<ir::LogEvent> events;
};

struct LaunchOptions {
  RunSettings settings;  ///< `run` is drawn if empty.
  NextProgram first;
  std::vector<DeviceId> devices;  ///< That may be used, ascending.
  std::vector<HostSlots> hosts;   ///< Empty: this machine has all devices.
  std::string listen;             ///< Address of the store; empty: loopback, or all with hosts.
  std::string advertise;          ///< Where other machines reach it; empty: `listen`, or the name.
  int port = 0;                   ///< 0: any free one.
  std::string token;              ///< Drawn if empty.
  std::string executable;         ///< For ranks: this program, unless another is named.
  std::vector<std::string> arguments = {"execute-rank"};
  bool ssh = false;  ///< Starts the agents of hosts by ssh, where `executable` has the same path.
  std::string out;   ///< Folder for logs; empty: none are written.
  std::vector<PlannedSwitch> switches;  ///< Ascending.
  NextProgramFunction next_program;     ///< Asked when settings.elastic.
  int most_generations = 32;
  std::chrono::milliseconds agents_wait{600'000};  ///< For agents that somebody has to start.
  std::chrono::milliseconds started_wait{60'000};  ///< For those that were started by ssh or here.
  std::function<void(const StepLine&)> on_step;
  std::function<void(const std::string&)> on_message;  ///< A line: what happens.
  const std::atomic<bool>* interrupted = nullptr;
};

struct LaunchReport {
  /// `refused`: nothing was started, since nodes lack files or folders that the settings name.
  enum class Result { completed, failed, interrupted, refused };
  Result result = Result::failed;
  std::string problem;          ///< Why it failed.
  std::vector<StepLine> steps;  ///< In the order in which they were finished.
  std::vector<GenerationSummary> generations;
};

/// True while a launch() writes into this folder, of this process or another one.
bool is_written(const std::string& out);

/// Runs to the end. Throws TransportError when the store's port cannot be had. Writes
/// out/losses.csv row by row as steps finish, whole rows at any time, and
/// out/generation-<g>/{program.pb, run.log, timeline.perfetto-trace} as generations end; throws
/// std::runtime_error if a file cannot be written, or another launch() writes there.
LaunchReport launch(LaunchOptions options);

}  // namespace orrery::executor
