/// The launcher: brings a Program up as one rank for each device, watches it, gathers the run log,
/// and starts a new generation with another Program when devices are lost (what to run then comes
/// from outside) or when a switch is planned. Ranks are processes, on this machine or on named
/// hosts, or threads of this process.
///
/// Survivors of a failure keep their processes and state. Every wait has a deadline; no process
/// outlives the launcher: local ranks die with it (PR_SET_PDEATHSIG), remote ones lose the store.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "executor/launcher/rank.h"
#include "executor/launcher/settings.h"
#include "executor/launcher/spawner.h"
#include "models/base/ids.h"
#include "models/config/visitor.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"

namespace orrery::ir {
void describe(config::Visitor& v, LogEvent& event);
}

namespace orrery::executor {

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
void describe(config::Visitor& v, LostDevices& lost);

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
  std::int32_t rank = 0;
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

struct LaunchOptions : SpawnOptions {
  NextProgram first;
  std::string out;                      ///< Folder for logs; empty: none are written.
  std::vector<PlannedSwitch> switches;  ///< Ascending.
  NextProgramFunction next_program;     ///< Asked when settings.elastic.
  int most_generations = 32;
  /// `out` is this launch's alone, and nothing has started.
  std::function<void()> on_claimed;
  std::function<void(const StepLine&)> on_step;
};

/// Another launch() writes into the folder, of this process or another one.
class FolderTaken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct LaunchReport {
  /// `refused`: nothing was started, since nodes lack files or folders that the settings name.
  enum class Result { completed, failed, interrupted, refused };
  Result result = Result::failed;
  std::string problem;          ///< Why it failed.
  std::vector<StepLine> steps;  ///< In the order in which they were finished.
  std::vector<GenerationSummary> generations;
};
std::vector<std::pair<LaunchReport::Result, const char*>> enum_names(LaunchReport::Result);

void describe(config::Visitor& v, StepLine& step);
void describe(config::Visitor& v, RankSummary& rank);
void describe(config::Visitor& v, GenerationSummary& generation);
void describe(config::Visitor& v, LaunchReport& report);

/// True while a launch() writes into this folder, of this process or another one.
bool is_written(const std::string& out);

/// Runs to the end. Throws TransportError when the store's port cannot be had. Writes
/// out/losses.csv row by row as steps finish, whole rows at any time, and
/// out/generation-<g>/{program.pb, run.log, timeline.perfetto-trace} as generations end; throws
/// std::runtime_error if a file cannot be written, FolderTaken before anything is touched.
LaunchReport launch(LaunchOptions options);

/// The same with ranks that are threads of this process: for emulated devices that must share one,
/// such as the parts of a GPU that green contexts divide it into (parts of one split are disjoint
/// only within a process), and for a plan that is to be looked at with a debugger. Losses are equal
/// to the bit.
///
/// There is one generation: a rank that fails ends the run, since its memory was that of all. The
/// settings have no faults, checkpoints or elasticity, the transport is tcp, and there are no hosts
/// and no switches (our bug otherwise). A rank's thread that does not end within the deadlines of
/// the settings is left behind and named. The result is never `refused`.
LaunchReport launch_on_threads(LaunchOptions options, ThreadRanks ranks = {});

}  // namespace orrery::executor
