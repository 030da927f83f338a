/// Settings of one replay: a job on a cluster, the trace that hits it, and a recovery policy. The
/// seed draws the trace, so that all policies of a case see the same one.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/run_spec.h"
#include "models/config/diagnostics.h"
#include "models/config/visitor.h"
#include "models/spec/runtime.h"

namespace orrery::experiments {

/// A policy with options, or just its name: `checkpoint_restart`.
struct ReplayPolicy {
  std::string name;   ///< Of the catalog; on an axis also `all`: every one, with its defaults.
  std::string label;  ///< In tables and figures; empty: the name.
  std::map<std::string, std::string> options;
  std::map<std::string, config::Position> option_positions;  ///< Where a file gives them.
  const std::string& shown() const { return label.empty() ? name : label; }
};

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
struct ReplayCase : TrainingInputs {  ///< `plan`: to begin with; none: the policy's own.
  std::string name;  ///< In tables and figures; of the study's axis `case`, not a setting.
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
/// "autohet": a policy by its name alone.
bool from_scalar(const std::string& text, ReplayPolicy& out, std::string& error);
void describe(config::Visitor& v, ReplayPolicy& policy);
void describe(config::Visitor& v, ReplayTrace& trace);
void describe(config::Visitor& v, ReplayCase& one);
void describe(config::Visitor& v, ReplayRun& run);

/// The policies of a list, `all` and an empty one expanded, each once. Options of `all` go to every
/// policy that has them and does not set them itself.
std::vector<config::Located<ReplayPolicy>> expand_policies(
    const std::vector<config::Located<ReplayPolicy>>& policies);

/// For each option of `all` the policies that have no such option, in words.
std::vector<std::string> options_not_of_all(
    const std::vector<config::Located<ReplayPolicy>>& policies);

/// A policy as a file would say it, at its places.
config::Value as_value(const config::Located<ReplayPolicy>& policy);

/// Unknown policies and unknown options, at the policy where the option has no place of its own.
void check_policy(const config::Located<ReplayPolicy>& policy, config::Diagnostics& diagnostics);
/// Values that the policy refuses, of a policy and options that check_policy() accepts.
void check_policy_values(const ReplayPolicy& policy, config::Position at,
                         config::Diagnostics& diagnostics);

}  // namespace orrery::experiments
