/// The files of a finished run as one answer of the store, so that a later call writes them again
/// without doing the run.
#pragma once
#include <optional>
#include <string>

#include "experiments/study/task.h"

namespace orrery::experiments {

/// What the files of the task are remembered by.
std::string files_key(const Task& task);

/// All files of the folder with their names, and what the run took; none if it has folders, or more
/// than 4 MiB.
std::optional<std::string> packed_files(const std::string& folder, const RunSeconds& seconds);

/// Writes them into `folder`, which is made, and says what the run took when it was done. None:
/// these are not the bytes of packed_files().
std::optional<RunSeconds> unpack_files(const std::string& bytes, const std::string& folder);

}  // namespace orrery::experiments
