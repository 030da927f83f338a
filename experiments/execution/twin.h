/// Plans are executed, the machine is calibrated, the simulator predicts what ran, and both are
/// compared: in one go, as a manifest says. Each step is kept on disk, so that a second call goes
/// on.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "experiments/execution/twin_manifest.h"
#include "experiments/execution/twin_results.h"
#include "experiments/study/call.h"
#include "models/config/visitor.h"
#include "models/ir/profile.h"
#include "models/spec/cluster.h"

namespace orrery::experiments {

/// Plan, execute, calibrate, predict and compare, as a manifest says.
struct TwinSettings {
  std::string manifest;
  Text results;
  std::optional<std::int64_t> steps;
  std::vector<std::string> only;  ///< Texts, one of which is in a run's name; empty: all runs.
  bool loopback = false;
  bool quick = false;
  bool dry_run = false;
  bool no_figure = false;
};
void describe(config::Visitor& v, TwinSettings& settings);

/// Writes twin.csv, phases.csv, errors.csv, parameters.csv, profiles, timelines and figures. Runs
/// whose executions fail have a problem; with settings.dry_run no run has more than its state, and
/// nothing is written. Throws ConfigError with all problems, Interrupted (finished runs are kept),
/// std::runtime_error.
TwinSummary twin(const TwinSettings& settings, const Call& call);

/// The times that were measured over loopback, under the name of each link class of the cluster
/// that has none: what replaces the cluster's links where ranks talk over loopback. Each copy's
/// source says so.
ir::Profile over_loopback(ir::Profile profile, const models::Cluster& cluster);

}  // namespace orrery::experiments
