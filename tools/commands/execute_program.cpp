#include "tools/commands/execute_program.h"

#include <fmt/format.h>

#include "executor/engine/worker.h"
#include "executor/model/shard.h"
#include "models/lower/lower.h"

namespace orrery::tools {

ExecutableProgram lower_for_ranks(const experiments::LoadedRun& run, const ir::Plan& plan,
                                  std::uint64_t seed) {
  ExecutableProgram out;
  for (const models::PlanDefect& defect : models::find_unsupported(plan)) {
    out.problems.push_back(fmt::format("{}: {}", defect.path, defect.what));
  }
  if (!out.problems.empty()) return out;
  models::LowerOptions options;
  options.collapsed = false;
  options.seed = seed;
  out.program = models::lower(plan, run.cluster, run.workload, run.spec.job, options);
  for (const auto& found :
       {executor::find_unsupported(out.program), executor::find_unrunnable(out.program)}) {
    for (const std::string& what : found) {
      out.problems.push_back("the executor cannot run " + what);
    }
  }
  return out;
}

}  // namespace orrery::tools
