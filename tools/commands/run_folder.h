/// What `orrery run` is asked to run: one file of an experiment, or all below a folder.
#pragma once
#include <string>
#include <vector>

#include "experiments/study/study.h"
#include "models/config/diagnostics.h"
#include "tools/commands/inputs.h"
#include "tools/commands/study_report.h"
#include "tools/commands/sweep_settings.h"

namespace orrery::tools {

struct RunSettings {
  std::string manifest;
  SweepSettings sweep;
  bool timelines = false;
};

void describe(config::Visitor& v, RunSettings& settings);

/// Steps with sequences of mixed lengths.
struct MixedLengthSettings {
  std::string file;
  Text steps;
  Text plan;  ///< File for the plan of one step.
  Text of;    ///< CASE/SYSTEM/STEP
  SweepSettings sweep;
};

void describe(config::Visitor& v, MixedLengthSettings& settings);

/// The file of a study: of a folder its kStudyFile. A problem where there is none.
std::string study_file(const std::string& given, config::Diagnostics& diagnostics);

/// As experiments::load_study(), of a study of that command; another one is a problem.
experiments::Study load_study_of(const std::string& file, const std::string& command,
                                 config::Diagnostics& diagnostics);

/// The `command` of a study; "" where the file says none.
std::string command_of_file(const std::string& file);

/// The studies of a folder and of those below it, by path; a file is itself. Where the
/// path leads nowhere, or to a folder without any, a problem.
std::vector<std::string> experiments_of(const std::string& path, config::Diagnostics& diagnostics);

/// Runs the files one after the other, each in a process of its own, and says how each went. Goes
/// on after one that failed; the status is that of the worst.
StudyReport run_folder(const RunSettings& args, const std::vector<std::string>& files,
                       const experiments::Call& call);

}  // namespace orrery::tools
