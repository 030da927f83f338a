/// What the flags of `orrery replay` say, as a study.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/days.h"
#include "experiments/study/inputs.h"
#include "experiments/study/replay_settings.h"
#include "experiments/study/study.h"
#include "models/config/diagnostics.h"
#include "tools/commands/sweep_settings.h"

namespace orrery::tools {

using experiments::Days;

/// Recovery policies on a trace: a study file, or flags that say the same.
struct ReplaySettings {
  std::string file;  ///< Of a study, or its folder; empty: the flags say what is replayed.
  experiments::JobSettings job{experiments::JobDefaults::fixed};
  std::optional<std::string> trace;
  std::optional<std::string> format;
  std::optional<std::string> generate;          ///< Generator, or a file with its settings.
  std::map<std::string, std::string> settings;  ///< Of generator or format.
  std::optional<Days> days;
  bool repeat = false;                               ///< The trace file starts again where it ends.
  std::optional<std::vector<std::string>> policies;  ///< None: all.
  std::map<std::string, std::string> options;        ///< By POLICY.NAME.
  std::optional<std::string> seeds;                  ///< A count, or a list: 1,2,5
  std::map<std::string, std::string> runtime;        ///< Settings of the runtime.
  std::optional<Seconds> expected_mtbf;
  std::optional<experiments::PlanningTime> planning_time;
  std::optional<experiments::Prices> prices;
  std::optional<experiments::BackgroundTransfers> background_transfers;
  std::optional<std::string> plan;
  std::optional<std::string> planner;  ///< Of the first plan, or "own".
  SweepSettings sweep;
};

void describe(config::Visitor& v, ReplaySettings& settings);

/// The study of the file, with the flags over it; or that of the flags.
experiments::Study study_of(const ReplaySettings& args, config::Diagnostics& diagnostics);

}  // namespace orrery::tools
