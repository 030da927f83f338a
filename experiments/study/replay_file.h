/// The file of a replay study (`schema: orrery/replay/1`): jobs on clusters, the traces that hit
/// them, and the recovery policies that are compared. A run is (case, policy, point of the policy's
/// axes, seed); the seed draws the trace, so that all policies of a case see the same one.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/figure.h"
#include "experiments/study/subject.h"
#include "models/config/diagnostics.h"
#include "models/config/visitor.h"
#include "models/spec/job.h"

namespace orrery::experiments {

/// A policy with options, or just its name: `checkpoint_restart`.
struct ReplayPolicy {
  std::string name;   ///< Of the catalog; `all`: every one, with its defaults.
  std::string label;  ///< In tables and figures; empty: the name.
  std::map<std::string, std::string> options;
  std::map<std::string, config::Position> option_positions;  ///< Where a file gives them.
  const std::string& shown() const { return label.empty() ? name : label; }
};

/// A file, or a generator (traces/generate/generate.h) with its settings.
struct ReplayTrace {
  std::optional<config::Located<std::string>> file;  ///< $ORRERY_DATA at its start is replaced.
  std::optional<std::string> format;                 ///< Of the file; none: our own.
  std::optional<config::Located<std::string>> generator;
  config::Value settings;  ///< Of the generator, or of the reader of the format.
  bool repeat = false;     ///< A file that ends before the horizon starts again.
};

struct ReplayCase {
  std::string name;
  config::Located<std::string> cluster;
  config::Located<std::string> model;
  config::Value job_text;  ///< As written: a map, or the path of a job file.
  models::Job job;         ///< What it says.
  std::optional<config::Located<std::string>> profile;
  std::optional<config::Located<std::string>> scale_profile;  ///< As RunSpec::scale_profile.
  std::optional<config::Located<std::string>> plan;  ///< To begin with; none: the policy's own.
  ReplayTrace trace;
  std::optional<Seconds> horizon;  ///< None: the trace's.
  /// Mean time between interruptions that policies count on; none: ExpectedInterruptions.
  std::optional<Seconds> expected_mtbf;
  bool ignore_leaves = false;                           ///< sim::CacheOptions.
  std::vector<config::Located<ReplayPolicy>> policies;  ///< Empty: the study's.
};

enum class PlanningTime {
  fixed,     ///< What the policy says; reproducible.
  measured,  ///< What the search really took here; not reproducible.
};
enum class Prices { on_demand, spot };
/// What checkpoints copy beside training (sim::ReplayOptions::background_transfers).
enum class BackgroundTransfers { ignored, simulated };

struct ReplayStudy : Subject {
  std::vector<ReplayCase> cases;
  std::vector<config::Located<ReplayPolicy>> policies;  ///< Empty: all of the catalog.
  config::Located<std::vector<std::int64_t>> seeds{{0}, {}};
  PlanningTime planning_time = PlanningTime::fixed;
  Prices prices = Prices::on_demand;
  BackgroundTransfers background_transfers = BackgroundTransfers::ignored;
  /// Values of options by `POLICY.OPTION`, POLICY as shown; runs of other policies do not multiply.
  std::map<std::string, config::Located<std::vector<std::string>>> sweep;

  std::string hash;  ///< Content hash of the file.
};

std::vector<std::pair<PlanningTime, const char*>> enum_names(PlanningTime);
std::vector<std::pair<BackgroundTransfers, const char*>> enum_names(BackgroundTransfers);
std::vector<std::pair<Prices, const char*>> enum_names(Prices);
/// "autohet": a policy by its name alone.
bool from_scalar(const std::string& text, ReplayPolicy& out, std::string& error);
void describe(config::Visitor& v, ReplayPolicy& policy);
void describe(config::Visitor& v, ReplayTrace& trace);
void describe(config::Visitor& v, ReplayCase& one);
void describe(config::Visitor& v, ReplayStudy& study);

/// Problems: those of the file, of its job files, unknown policies and options.
ReplayStudy load_replay_study(const std::string& path, config::Diagnostics& diagnostics);

/// The policies of a list, `all` and an empty one expanded, each once. Options of `all` go to every
/// policy that has them and does not set them itself.
std::vector<ReplayPolicy> expand_policies(
    const std::vector<config::Located<ReplayPolicy>>& policies);

/// For each option of `all` the policies that have no such option, in words.
std::vector<std::string> options_not_of_all(
    const std::vector<config::Located<ReplayPolicy>>& policies);

/// Unknown policies and unknown options, at `at` where the option has no place of its own. Values
/// are checked when a policy is made: what is right depends on job and cluster.
void check_policy(const ReplayPolicy& policy, config::Position at,
                  config::Diagnostics& diagnostics);

/// `path` seen from `folder`; "$ORRERY_DATA/..." below that folder (default: ../shared beside the
/// source tree).
std::string data_path(const std::string& path, const std::string& folder);
bool is_below_data(const std::string& path);

}  // namespace orrery::experiments
