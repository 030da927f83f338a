/// Runs studies, and says what their runs are.
#pragma once
#include <string>
#include <vector>

#include "experiments/study/study.h"
#include "experiments/study/sweep.h"
#include "experiments/study/task.h"
#include "models/spec/library.h"

namespace orrery::experiments {

struct StudyResult : SweepOutcome {
  std::vector<Task> runs;            ///< Of this shard.
  std::vector<std::string> skipped;  ///< What did not run for want of data, in words.
};

/// The runs of a study. Adds what is wrong with them, and with the files that they name.
TaskList tasks_of(const Study& study, const models::Library& library, const RunnerOptions& options,
                  config::Diagnostics& diagnostics);

/// Adds what is wrong with a study's runs to what is named already: also useful for a study
/// that has problems itself, as far as it can be read. Returns the number of runs.
std::size_t check_study(const Study& study, const models::Library& library,
                        config::Diagnostics& diagnostics);

/// All runs of a study [sweep.h]. Problems of the study or of files that it names throw ConfigError
/// before anything runs. No FlowEngine may exist in this process.
StudyResult run_study(const Study& study, const models::Library& library,
                      const RunnerOptions& options, const Call& call);

}  // namespace orrery::experiments
