/// What the forked child of a sweep does around one run.
#pragma once
#include <sys/types.h>

#include <functional>
#include <string>

#include "experiments/study/task.h"

namespace orrery::experiments {

/// What a worker tells its parent besides the folder.
struct WorkerReport {
  int write_error = 0;  ///< errno of a file that could not be written.
  std::string problem;  ///< In words; "": the folder is complete.
  RunSeconds seconds;
};

/// In the folder of a run: what the worker prints. Locked (flock) until the worker has ended.
inline constexpr const char* kWorkerLog = "log.txt";

/// Makes the folder, sends standard output and error to kWorkerLog in it, and calls `fill`. Call it
/// in a forked child of `parent` only. Returns an encoded WorkerReport.
std::string run_worker(const std::string& folder, pid_t parent,
                       const std::function<RunSeconds()>& fill);

WorkerReport decode_report(const std::string& bytes);

}  // namespace orrery::experiments
