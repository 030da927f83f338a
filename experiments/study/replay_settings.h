/// Settings of one replay: a job on a cluster, the trace that hits it, and a recovery policy. The
/// seed draws the trace, so that all policies of a case see the same one.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/replay_policy.h"
#include "experiments/study/run_spec.h"
#include "models/config/diagnostics.h"
#include "models/config/visitor.h"
#include "models/spec/runtime.h"
#include "traces/trace.h"

namespace orrery::experiments {

/// Of horizons and times between interruptions.
inline constexpr Seconds kLeastTime{1e-3};
inline constexpr Seconds kLongestTime = to_seconds(Nanoseconds{traces::kLongestTime});

/// Where in a trace file a replay begins.
enum class TraceStart {
  file,  ///< With the file.
  seed,  ///< Somewhere in it, drawn from the seed: a file then gives as many traces as it has room.
};

/// A file, or a generator (traces/generate/generate.h) with its settings.
struct ReplayTrace {
  std::optional<config::Located<std::string>> file;  ///< $ORRERY_DATA at its start is replaced.
  std::optional<std::string> format;                 ///< Of the file; none: our own.
  std::optional<config::Located<std::string>> generator;
  config::Value settings;           ///< Of the generator, or of the reader of the format.
  bool repeat = false;              ///< A file that ends before the horizon starts again.
  std::optional<TraceStart> start;  ///< Of a file; none: with the file.
};

/// What is replayed, whatever the policy.
struct ReplayCase : TrainingInputs {  ///< `plan`: to begin with.
  std::string name;  ///< In tables and figures; of the study's axis `case`, not a setting.
  /// Makes the plan that all policies begin with, but those that cannot run it. With neither plan
  /// nor planner each begins with its own.
  std::optional<PlannerChoice> planner;
  ReplayTrace trace;
  models::Runtime runtime;
  std::optional<std::int64_t> nodes;  ///< The first ones of the cluster; none: all.
  std::optional<Seconds> horizon;     ///< None: the trace's.
  /// Mean time between interruptions that policies count on; none: ExpectedInterruptions.
  std::optional<Seconds> expected_mtbf;
  bool ignore_leaves = false;  ///< sim::CacheOptions.
};

enum class PlanningTime {
  fixed,     ///< What the policy says; reproducible.
  measured,  ///< What the search really took here; not reproducible.
};
enum class Prices { on_demand, spot };
/// What checkpoints copy during training (sim::ReplayOptions::background_transfers).
enum class BackgroundTransfers { ignored, simulated };

/// How it is replayed, apart from the policy.
struct ReplayOptions {
  PlanningTime planning_time = PlanningTime::fixed;
  Prices prices = Prices::on_demand;
  BackgroundTransfers background_transfers = BackgroundTransfers::simulated;
  std::int64_t seed = 0;
};

struct ReplayRun {
  ReplayCase what;
  config::Located<ReplayPolicy> policy;
  ReplayOptions how;
};

std::vector<std::pair<TraceStart, const char*>> enum_names(TraceStart);
std::vector<std::pair<PlanningTime, const char*>> enum_names(PlanningTime);
std::vector<std::pair<BackgroundTransfers, const char*>> enum_names(BackgroundTransfers);
std::vector<std::pair<Prices, const char*>> enum_names(Prices);
void describe(config::Visitor& v, ReplayTrace& trace);
void describe(config::Visitor& v, ReplayCase& one);
void describe(config::Visitor& v, ReplayRun& run);

/// Flags `format` and `set` of commands that replay.
template <class Value>
void describe_trace_flags(config::Visitor& v, std::optional<std::string>& format,
                          std::map<std::string, Value>& settings) {
  v.optional("format", format, "of a trace file of others (orrery trace import --help)");
  v.optional("set", settings,
             "NAME=VALUE: setting of the generator or of the format; may be repeated");
}
/// Flags `prices`, `background_transfers` and `runtime` of commands that replay.
template <class PricesFlag, class TransfersFlag>
void describe_replay_flags(config::Visitor& v, PricesFlag& prices, TransfersFlag& transfers,
                           std::map<std::string, std::string>& runtime) {
  v.optional("prices", prices, "on_demand (default) or spot, where the trace names none");
  v.optional("background_transfers", transfers,
             "what checkpoints copy during training: simulated (default), it slows the iterations "
             "of that time; ignored halves the simulations and flatters who copies much");
  v.optional("runtime", runtime,
             "NAME=VALUE: what it takes to notice, to start, to connect and to plan (orrery schema "
             "replay --reference), as in monitor=timeout or start_node=\"45 s\"; may be repeated");
}

}  // namespace orrery::experiments
