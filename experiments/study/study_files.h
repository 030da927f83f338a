/// Finds the files of studies: by a path that may be a folder, or all below a folder.
#pragma once
#include <string>
#include <vector>

#include "experiments/study/study.h"
#include "models/config/diagnostics.h"

namespace orrery::experiments {

/// The file of a study: of a folder its kStudyFile. A problem where there is none.
std::string study_file(const std::string& given, config::Diagnostics& diagnostics);

/// As load_study(), of a study of that command; another one is a problem.
Study load_study_of(const std::string& file, const std::string& command,
                    config::Diagnostics& diagnostics);

/// The `command` of a study; "" where the file says none.
std::string command_of_file(const std::string& file);

/// The studies of a folder and of those below it, by path; a file is itself. Where the
/// path leads nowhere, or to a folder without any, a problem.
std::vector<std::string> studies_below(const std::string& path, config::Diagnostics& diagnostics);

}  // namespace orrery::experiments
