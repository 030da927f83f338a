/// What `orrery run` is asked to run: one file of an experiment, or all below a folder.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/slurm.h"
#include "models/config/visitor.h"
#include "tools/commands/study_report.h"
#include "tools/commands/sweep_settings.h"

namespace orrery::tools {

struct RunSettings {
  std::string manifest;
  SweepSettings sweep;
  bool timelines = false;
  bool join = false;
  experiments::SlurmSettings slurm;
};

void describe(config::Visitor& v, RunSettings& settings);

/// Steps with sequences of mixed lengths.
struct MixedLengthSettings {
  std::string file;
  std::optional<std::string> steps;
  std::optional<std::string> plan;  ///< File for the plan of one step.
  std::optional<std::string> of;    ///< CASE/SYSTEM/STEP
  SweepSettings sweep;
};

void describe(config::Visitor& v, MixedLengthSettings& settings);

/// This program with the settings for one study.
std::vector<std::string> run_command(const RunSettings& args, const std::string& file);

/// Runs the files one after the other, each in a process of its own, and says how each went. Goes
/// on after one that failed; the status is that of the worst.
StudyReport run_folder(const RunSettings& args, const std::vector<std::string>& files,
                       const experiments::Call& call);

}  // namespace orrery::tools
