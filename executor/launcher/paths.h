/// Checks the files and folders that a run's settings name, on the machine that will use them,
/// before anything starts there.
#pragma once
#include <string>
#include <vector>

#include "executor/launcher/settings.h"

namespace orrery::executor {

/// A file or folder that cannot be used.
struct PathProblem {
  std::string setting;  ///< Which one: data, checkpoints (on each node) or cloud.
  std::string problem;  ///< In words, with its path.
};

/// What is wrong with the data file and the checkpoint folders of this machine; empty: nothing.
/// Creates the folders.
std::vector<PathProblem> find_path_problems(const RunSettings& settings);

}  // namespace orrery::executor
