/// Runs in forked children: one simulator a process, as many at once as there are cores.
#pragma once
#include <string>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/execute.h"
#include "experiments/study/exports.h"

namespace orrery::experiments {

struct RunTask {
  std::string name;  ///< Of the report.
  LoadedRun run;
  Exports exports;
};

/// Carries out all tasks, reports in their order. SIGINT cancels searches: the best plan so far
/// comes back. Throws std::runtime_error if a child fails.
std::vector<RunReport> run_tasks(const std::vector<RunTask>& tasks, const Call& call);

}  // namespace orrery::experiments
