/// Plans as programs that the executor can run. Private to the execute command.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "experiments/study/execute.h"
#include "models/ir/program.h"

namespace orrery::tools {

/// What keeps a valid plan from being run for real, in words; empty: nothing.
struct ExecutableProgram {
  ir::Program program;
  std::vector<std::string> problems;
};

/// Lowers with one rank for each device. `seed` is that of the initial weights.
ExecutableProgram lower_for_ranks(const experiments::LoadedRun& run, const ir::Plan& plan,
                                  std::uint64_t seed);

}  // namespace orrery::tools
