/// What the forked child of a sweep does: one run, into one folder.
#pragma once
#include <sys/types.h>

#include <string>

#include "experiments/runner/manifest.h"
#include "experiments/runner/result.h"
#include "models/spec/library.h"

namespace orrery::experiments {

struct WorkerTask {
  const PlannedRun& run;
  const RunIdentity& identity;
  std::string base_folder;  ///< Of the manifest.
  std::string folder;       ///< To fill; renamed by the parent.
  bool timeline = false;
  pid_t parent = 0;
};

/// What a worker tells its parent besides the folder.
struct WorkerReport {
  int write_error = 0;  ///< errno of a file that could not be written.
  std::string problem;  ///< In words; "": the folder is complete.
  double planning_seconds = 0;
  double evaluation_seconds = 0;
};

/// Fills the folder: effective.yaml, plan.yaml, summary.json, profile_entries.txt, log.txt and
/// timeline.perfetto if asked for. Standard output and error go to log.txt. Call it in a forked
/// child only. Returns an encoded WorkerReport.
std::string run_worker(const WorkerTask& task, const models::Library& library);

WorkerReport decode_report(const std::string& bytes);

}  // namespace orrery::experiments
