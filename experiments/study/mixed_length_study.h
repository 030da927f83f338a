/// `command: mixed_length`: what a run leaves, for tables. A run is all steps of one system; it
/// leaves steps.csv, one row a step, which the results folder has for all runs.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/mixed_length.h"
#include "experiments/study/task.h"
#include "models/base/units.h"
#include "models/config/visitor.h"
#include "models/spec/library.h"

namespace orrery::experiments {

/// What a finished run says about itself.
struct MixedLengthSummary {
  std::string of_case;
  std::string system;
  std::string status;  ///< ok, infeasible or failed; "": not run yet.
  std::string reason;
  Seconds mean;  ///< Of a step.
  Seconds low;   ///< 10 % of the steps are below.
  Seconds high;  ///< 90 % of the steps are below.
  Seconds switching;
  double switches = 0;                  ///< In a step.
  double computed_tokens = 0;           ///< In a step.
  std::vector<std::string> strategies;  ///< In words.
  /// How the search for the strategies went; nothing where they were given.
  std::vector<std::string> search;
};

void describe(config::Visitor& v, MixedLengthSummary& summary);

/// The runs of points, as far as they have no problems; those with equal lengths draw from one
/// stream, so give all points of a study.
std::vector<std::pair<Point, std::shared_ptr<LoadedMixedLength>>> load_mixed_lengths(
    const Study& study, std::vector<Point> points, const models::Library& library,
    config::Diagnostics& diagnostics);

/// What came of a run below the folder of results.
MixedLengthSummary mixed_length_summary(const Task& run, const std::string& results);

}  // namespace orrery::experiments
