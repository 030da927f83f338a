/// What `orrery run` is asked to run: one file of an experiment, or all below a folder.
#pragma once
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "tools/commands/inputs.h"
#include "tools/commands/sweep_settings.h"

namespace orrery::tools {

struct RunSettings {
  std::string manifest;
  SweepSettings sweep;
  bool timelines = false;
  bool json = false;
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
int run_mixed_length_study(const MixedLengthSettings& settings);

enum class ExperimentKind { manifest, replay, steps, mixed_length, twin };

/// Names of the files that a folder of an experiment holds.
inline constexpr const char* kManifestFile = "manifest.yaml";
inline constexpr const char* kReplayFile = "replay.yaml";
inline constexpr const char* kStepsFile = "steps.yaml";
inline constexpr const char* kMixedLengthFile = "mixed_length.yaml";

/// By the `schema` of a file; a file without one that is known counts as a manifest, whose reader
/// says what is wrong with it.
ExperimentKind kind_of(const std::string& file);

/// The experiment files of a folder and of those below it, by path; a file is itself. Where the
/// path leads nowhere, or to a folder without any, a problem.
std::vector<std::string> experiments_of(const std::string& path, config::Diagnostics& diagnostics);

/// Runs the files one after the other, each in a process of its own, and says at the end how each
/// went. Goes on after one that failed; the status is that of the worst.
int run_folder(const RunSettings& args, const std::vector<std::string>& files);

/// `orrery run` of a steps file.
int run_steps_file(const RunSettings& args);

}  // namespace orrery::tools
