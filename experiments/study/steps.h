/// Experiments that are no sweep of a planner or a policy: a few commands, each of which prints or
/// writes a table, and a figure of them. Commands are this program's own (`orrery switch ...
/// --json`) or programs of the build tree that belong to the experiment.
///
/// A step is a run like any other (run_set.h): it starts when a worker is free, its folder appears
/// whole, and a step that has finished is not done again unless its command, its inputs or the
/// program changed.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "experiments/study/subject.h"
#include "experiments/study/sweep.h"
#include "models/config/diagnostics.h"
#include "models/config/visitor.h"

namespace orrery::experiments {

struct Step {
  std::string name;
  /// Words. The first is `orrery`, or a program's path below the build folder. "{out}" in a word is
  /// the folder of the step's results; "$ORRERY_DATA/..." is as in data_path(). Paths are seen from
  /// the folder of the file.
  config::Located<std::vector<std::string>> command;
  std::string output;  ///< File in the step's folder that takes what the command prints.
};

struct StepsFile : Subject {
  std::vector<Step> steps;
  /// Files and folders whose content decides the results, beside the folder of the file itself
  /// (scripts, texts and published values in it do not count).
  std::vector<config::Located<std::string>> inputs;
  std::vector<std::string> needs;  ///< Data below $ORRERY_DATA without which nothing runs.
  /// Files of the steps' folders that are also put into the results folder itself.
  std::vector<std::string> publish;
};

/// YAML (`schema: orrery/steps/1`).
void describe(config::Visitor& v, Step& step);
void describe(config::Visitor& v, StepsFile& file);

/// Problems: those of the file, files that are not there, programs that are not built.
StepsFile load_steps(const std::string& path, config::Diagnostics& diagnostics);

struct StepsResult : SweepOutcome {
  std::vector<std::string> skipped;  ///< Data that is not there, in words; then nothing ran.
};

/// All steps. No FlowEngine may exist in this process.
StepsResult run_steps(const StepsFile& file, const RunnerOptions& options,
                      const std::function<void(const Progress&)>& on_progress);

}  // namespace orrery::experiments
