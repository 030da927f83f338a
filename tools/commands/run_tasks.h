/// Runs in forked children: one simulator a process, as many at once as there are cores.
#pragma once
#include <string>
#include <vector>

#include "experiments/study/execute.h"
#include "tools/commands/exports.h"

namespace orrery::tools {

struct RunTask {
  std::string name;  ///< Of the report.
  experiments::LoadedRun run;
  Exports exports;
};

/// Carries out all tasks, reports in their order. Ctrl-C ends searches: the best plan so far comes
/// back; a second Ctrl-C ends the process. Throws std::runtime_error if a child fails.
std::vector<experiments::RunReport> run_tasks(const std::vector<RunTask>& tasks);

/// True after Ctrl-C.
bool was_interrupted();

/// Exit status after Ctrl-C.
inline constexpr int kInterrupted = 130;

}  // namespace orrery::tools
