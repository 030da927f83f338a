/// What `orrery twin` is asked to do: the plans to execute and to predict, and the runs that lose a
/// device.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/execution/execute.h"
#include "models/config/diagnostics.h"
#include "models/config/visitor.h"

namespace orrery::experiments {

/// A plan to execute: a file, or what a planner makes.
struct TwinPlan {
  config::Located<std::string> name;
  std::optional<config::Located<std::string>> plan;  ///< File, seen from the manifest.
  std::optional<config::Located<std::string>> planner;
  std::map<std::string, std::string> options;
  /// File in place of the manifest's job, of the same sequence length and dtype.
  std::optional<config::Located<std::string>> job;
  bool fit = false;  ///< Its run is for fitting, the others are predicted.
  /// Why its run is no unseen one, if the model was changed after a look at it.
  std::optional<config::Located<std::string>> seen;
};

/// A run that loses a device.
struct TwinRecovery {
  config::Located<std::string> name;
  config::Located<std::string> plan;  ///< Name of one of the plans.
  config::Located<std::string> policy;
  config::Located<KillRequest> kill;
  bool fit = false;
};

/// A study of `command: twin` (experiments/study/twin_settings.h).
struct TwinManifest {
  std::string name;
  config::Located<std::string> cluster;  ///< Name or file, as in all of these.
  config::Located<std::string> model;
  config::Located<std::string> job;  ///< File.
  /// File, of the machine; none: it is measured (orrery calibrate).
  std::optional<config::Located<std::string>> profile;
  std::int64_t steps = 10;
  std::int64_t warm_up = 2;
  std::int64_t seed = 0;
  std::vector<TwinPlan> plans;
  std::vector<TwinRecovery> recoveries;

  std::string folder;  ///< That the file lies in.
  std::string hash;    ///< Of the file's content.
};

/// The study, or that of a folder. Problems: those of the file, runs on several clusters or models,
/// plans and jobs that are not there, jobs of another sequence length or dtype (the machine is
/// measured for one), unknown planners and policies, kills after the last step. Paths are resolved.
TwinManifest load_twin_manifest(const std::string& path, config::Diagnostics& diagnostics);

}  // namespace orrery::experiments
