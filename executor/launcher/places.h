/// Files and folders that a run's settings name, looked at on the machine that will use them before
/// anything starts there.
#pragma once
#include <string>
#include <vector>

#include "executor/launcher/settings.h"

namespace orrery::executor {

/// What is wrong with the data file and the checkpoint folders of this machine, in words, each with
/// its path; empty: nothing. Makes the folders.
std::vector<std::string> find_bad_places(const RunSettings& settings);

}  // namespace orrery::executor
